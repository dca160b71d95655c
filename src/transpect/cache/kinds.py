"""Kinds of caches as values: what a model is given to remember by, and up to where it can go on with it."""

from __future__ import annotations

from dataclasses import dataclass

from transpect.base.checks import within
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.cache.block_pool import BlockPool
from transpect.cache.dense import DenseCache
from transpect.cache.int8 import Int8Cache, check_group
from transpect.cache.memory import check_memory
from transpect.cache.paged import PagedCache, Pages
from transpect.cache.sinks import SinksCache
from transpect.cache.sliding import SlidingCache
from transpect.cache.static import StaticCache
from transpect.cache.sums import SumsCache
from transpect.core.config import ModelConfig
from transpect.core.context import Cache
from transpect.core.stack_config import StackConfig
from transpect.core.visibility import All, AnyOf, Visibility, Window


class CacheKind(Variant):
    """A kind of cache with its options. Children implement `build`."""

    def check(self, config: ModelConfig) -> None:
        """Refuse a model that can't be served by it.

        Raises:
            ConfigError: it can't.
        """

    def build(self, config: ModelConfig) -> Cache:
        """An empty one for a model that passes `check`."""
        raise AssertionError("abstract")

    def room(self, config: ModelConfig) -> int | None:
        """How many tokens a row may become; None is without end."""
        return config.context_length

    def piece(self, config: ModelConfig, longest: int, asked: int | None) -> int | None:
        """How many columns of prompts, the longest of so many tokens, are read at once, where a caller asks for so
        many; None is all."""
        return asked


@dataclass(frozen=True)
class Dense(CacheKind, kind="dense"):
    """All keys and values as they are; the sums over them where self-attention needs no more (`SumsCache`)."""

    def build(self, config: ModelConfig) -> Cache:
        return SumsCache() if config.last.keeps_sums else DenseCache()


@dataclass(frozen=True)
class Static(CacheKind, kind="static"):
    """All keys and values in buffers of one length (`StaticCache`).

    Attributes:
        length: how many columns there is room for, prompt and new tokens together.
    """

    length: int

    def __post_init__(self) -> None:
        within("length", self.length)

    def build(self, config: ModelConfig) -> Cache:
        return StaticCache(self.length)

    def room(self, config: ModelConfig) -> int | None:
        return min(self.length, config.context_length)


@dataclass(frozen=True)
class Paged(CacheKind, kind="paged"):
    """All keys and values in blocks that rows share while they are alike (`PagedCache`).

    Attributes:
        block: how many tokens a block has room for.
    """

    block: int = 16

    def __post_init__(self) -> None:
        within("block", self.block)

    def build(self, config: ModelConfig) -> Cache:
        return PagedCache(Pages(BlockPool(self.block)))


@dataclass(frozen=True)
class Int8(CacheKind, kind="int8"):
    """All keys and values in eight bits a number (`Int8Cache`).

    Attributes:
        group: how many numbers of a head share a scale.
    """

    group: int = 16

    def __post_init__(self) -> None:
        within("group", self.group)

    def check(self, config: ModelConfig) -> None:
        for stack in config.last.kinds:
            check_group(self.group, stack.attention.width(config.d_model))

    def build(self, config: ModelConfig) -> Cache:
        return Int8Cache(self.group)


DENSE = Dense()
"""What is there where nobody asks."""


@dataclass(frozen=True)
class Sliding(CacheKind, kind="sliding"):
    """Those of the last tokens (`SlidingCache`), which goes on beyond the context.

    Attributes:
        memory: how many columns are seen before each piece that is read, and so before each new token; None is as many
            as the rules of the layers let a token see, so that nothing changes but how much is kept.
    """

    memory: int | None = None

    def __post_init__(self) -> None:
        within("memory", self.memory, 0)

    def check(self, config: ModelConfig) -> None:
        check_memory(config)
        self.limit(config)

    def build(self, config: ModelConfig) -> Cache:
        return SlidingCache(self.limit(config))

    def limit(self, config: ModelConfig) -> int:
        """M.

        Raises:
            ConfigError: none is given, and some layer sees everything.
        """
        if self.memory is not None:
            return self.memory
        reaches = [_reach(stack.visibility) for stack in config.last.kinds]
        known = [reach for reach in reaches if reach is not None]
        if len(known) < len(reaches):
            raise ConfigError(
                "a sliding cache that changes nothing is for models of which every layer sees a window",
                value=f"visibility {config.last.kinds[reaches.index(None)].visibility.kind}",
                remedy="Say how much is to be kept: memory=N; or keep everything: Dense().",
            )
        return max(known) - 1

    def room(self, config: ModelConfig) -> int | None:
        return None

    def piece(self, config: ModelConfig, longest: int, asked: int | None) -> int | None:
        return asked or config.context_length


@dataclass(frozen=True)
class Sinks(CacheKind, kind="sinks"):
    """Those of the first tokens and of the last ones (`SinksCache`), which goes on beyond the context within the
    positions that the model knows.

    Attributes:
        n_sinks: how many of the first tokens.
        memory: how many tokens before the new one; None is what fills the context.
    """

    n_sinks: int = 4
    memory: int | None = None

    def __post_init__(self) -> None:
        within("n_sinks", self.n_sinks, 0)
        within("memory", self.memory, 0)

    def check(self, config: ModelConfig) -> None:
        limit = self.limit(config)
        if limit < 0 or self.n_sinks + limit + 1 > config.context_length:
            raise ConfigError(
                f"sinks, window and a new token must fit the model's context of {config.context_length} tokens",
                value=f"n_sinks={self.n_sinks}, memory={limit}",
                remedy="Keep fewer.",
            )
        for stack in config.last.kinds:
            _check_moves(stack)

    def build(self, config: ModelConfig) -> Cache:
        stacks = config.last.kinds
        movers = [stack.positions.mover(stack.attention.width(config.d_model)) for stack in stacks]
        return SinksCache(self.n_sinks, self.limit(config), [movers[kind] for kind in config.last.kind_of])

    def room(self, config: ModelConfig) -> int | None:
        return None

    def piece(self, config: ModelConfig, longest: int, asked: int | None) -> int | None:
        return 1 if longest > self.n_sinks + self.limit(config) + 1 else asked

    def limit(self, config: ModelConfig) -> int:
        """M."""
        return config.context_length - self.n_sinks - 1 if self.memory is None else self.memory


def chosen(cache: CacheKind | None, memory: int | None) -> CacheKind:
    """The kind that a caller asks for, where ``memory`` is short for `Sliding`.

    Raises:
        ConfigError: both are given, or ``cache`` is no kind of cache.
    """
    if cache is not None and not isinstance(cache, CacheKind):
        raise ConfigError(
            "cache must be a kind of cache", value=cache, remedy="Pass transpect.cache.Int8() or its like."
        )
    if memory is None:
        return DENSE if cache is None else cache
    if cache is not None:
        raise ConfigError(
            "a memory is a kind of cache, so there can't be another", value=f"memory={memory}, cache={cache.kind}"
        )
    return Sliding(memory)


def _reach(rule: Visibility) -> int | None:
    """How many of the last tokens, itself included, a query sees at most; None where no number is known."""
    if isinstance(rule, Window):
        return (rule.width - 1) * rule.dilation + 1
    if isinstance(rule, All | AnyOf):
        reaches = [_reach(part) for part in rule.rules]
        known = [reach for reach in reaches if reach is not None]
        if isinstance(rule, All):
            return min(known, default=None)
        return max(known) if len(known) == len(reaches) else None
    return None


def _check_moves(stack: StackConfig) -> None:
    """Whether nothing but the distance between two tokens matters to a layer, so that sinks can follow the window."""
    remedy = "Choose overflow=error or overflow=stop, or a model with rope, alibi, kerple, t5 or transformer_xl."
    if not stack.positions.relative:
        raise ConfigError(
            "sinks follow the window, but these positions are absolute or depend on the length of the whole",
            value=f"positions {stack.positions.kind}",
            remedy=remedy,
        )
    plain = stack.visibility.plain()
    if not plain.reads_distance_alone or stack.looks_ahead(prefix=True) or stack.asks_for("is_global"):
        raise ConfigError(
            "sinks follow the window, so who sees whom may depend on the distance alone",
            value=f"visibility {stack.visibility.kind}",
            remedy="Choose overflow=error or overflow=stop, or a model with causal or window.",
        )
