"""Who may see whom: rules as predicates on the tags of queries and keys.

Axes: B batch, T query, S key.

A rule composes with ``&`` and ``|`` and can be drawn::

    print((Causal() & Window(3)).draw(6))

Padding (position −1) neither sees nor is seen, under every rule. A mask is bool, True where the key is visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

import torch
from torch import Tensor

from transpect.base.checks import LARGEST, at_most
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError, MaskError
from transpect.core.context import Tags


class Visibility(Variant):
    """A rule. Children implement `sees`; nothing else needs to know which rule it is."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        """[B, T, S] bool: True where the rule lets the query see the key; padding is not its concern."""
        raise AssertionError("abstract")

    def plain(self) -> Visibility:
        """The simplest rule that agrees with this one on a single document without padding, prefix or global token."""
        return self

    @property
    def probe(self) -> tuple[int, ...]:
        """Positions among which the rule shows all that it does."""
        return (0, 1, 2, 3)

    def looks_ahead(self, *, prefix: bool) -> bool:
        """Whether a token may see a later one of its document; ``prefix`` asks this of tokens tagged as a prefix."""
        # on the CPU, since a model may be built where nothing can be read
        position = torch.tensor(sorted(set(self.probe)), device="cpu")
        # a row ends at each position, since a rule may depend on how long a sequence is
        ending = torch.where(position <= position[:, None], position, -1)
        tags = Tags.of(ending, prefix=torch.full_like(ending, prefix, dtype=torch.bool))
        return bool(self.mask(tags, tags).triu(1).any())

    def reads(self, tag: Literal["prefix", "is_global"]) -> bool:
        """Whether it depends on which tokens have this tag."""
        position = torch.tensor([sorted(set(self.probe))], device="cpu")
        nowhere, somewhere = Tags.of(position), Tags.of(position, **{tag: position < 2})
        return not torch.equal(self.mask(nowhere, nowhere), self.mask(somewhere, somewhere))

    @property
    def reads_length(self) -> bool:
        """Whether it depends on how long a sequence is in all (`Tags.horizon`)."""
        return False

    def __and__(self, other: Visibility) -> Visibility:
        return All((self, other))

    def __or__(self, other: Visibility) -> Visibility:
        return AnyOf((self, other))

    def mask(self, query: Tags, key: Tags) -> Tensor:
        """[B, T, S] bool, True where visible, padding excluded."""
        real = (query.position >= 0)[:, :, None] & (key.position >= 0)[:, None, :]
        return self.sees(query, key) & real

    def draw(self, length: int | Tags, key: Tags | None = None) -> str:
        """The mask of the first row as text: a line a query, ``■`` visible, ``·`` hidden."""
        query = Tags.dense(1, length) if isinstance(length, int) else length
        mask = self.mask(query, query if key is None else key)[0]
        return "\n".join(" ".join("■" if seen else "·" for seen in row) for row in mask.tolist())


@dataclass(frozen=True)
class Full(Visibility, kind="full"):
    """Everyone sees everyone (encoders, cross-attention)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return torch.ones((), dtype=torch.bool, device=key.position.device).expand(
            key.position.shape[0], query.position.shape[1], key.position.shape[1]
        )


@dataclass(frozen=True)
class Causal(Visibility, kind="causal"):
    """j ≤ i: a query sees itself and the past."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return _not_after(query, key)


@dataclass(frozen=True)
class Window(Visibility, kind="window"):
    """0 ≤ i−j < width: the query itself and width−1 before it (Mistral, Longformer §3.1).

    Attributes:
        width: how many keys a query sees at most, itself included.
        both_ways: |i−j| < width instead, for encoders.
    """

    width: int
    both_ways: bool = False

    def __post_init__(self) -> None:
        at_most("Window.width", self.width, LARGEST)
        if self.width < 1:
            raise ConfigError("Window.width must be at least 1: a query sees itself", value=self.width)

    def sees(self, query: Tags, key: Tags) -> Tensor:
        near = key.position[:, None, :] > (query.position - self.width)[:, :, None]
        if self.both_ways:
            return near & (key.position[:, None, :] < (query.position + self.width)[:, :, None])
        return near & _not_after(query, key)


@dataclass(frozen=True)
class PrefixLM(Visibility, kind="prefix_lm"):
    """The prefix sees itself both ways, the rest is causal (T5 §3.2.1, UniLM §2.3)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return _not_after(query, key) | (query.prefix[:, :, None] & key.prefix[:, None, :])

    def plain(self) -> Visibility:
        return Causal()


@dataclass(frozen=True)
class SameSegment(Visibility, kind="same_segment"):
    """Only tokens of the same packed document see each other."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return query.segment[:, :, None] == key.segment[:, None, :]

    def plain(self) -> Visibility:
        return Full()


@dataclass(frozen=True)
class GlobalTokens(Visibility, kind="global_tokens"):
    """Tokens tagged as global see everyone and are seen by everyone (Longformer §3.1)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return query.is_global[:, :, None] | key.is_global[:, None, :]


@dataclass(frozen=True)
class _Composed(Visibility):
    """Several rules as one; a child says how."""

    rules: tuple[Visibility, ...]

    def __post_init__(self) -> None:
        if not self.rules:
            raise ConfigError("a composition of rules needs at least one rule", remedy="Use `full` to hide nothing.")

    @property
    def probe(self) -> tuple[int, ...]:
        return tuple(position for rule in self.rules for position in rule.probe)

    def reads(self, tag: Literal["prefix", "is_global"]) -> bool:
        # asked of each: a wide rule beside it hides, at the positions of a probe, what the other one does
        return any(rule.reads(tag) for rule in self.rules)

    @property
    def reads_length(self) -> bool:
        return any(rule.reads_length for rule in self.rules)


@dataclass(frozen=True)
class All(_Composed, kind="all"):
    """Visible under every one of ``rules`` (``a & b``)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return reduce(torch.logical_and, (rule.sees(query, key) for rule in self.rules))

    def plain(self) -> Visibility:
        rules = tuple(plain for plain in (rule.plain() for rule in self.rules) if plain != Full())
        return All(rules) if len(rules) > 1 else (rules or (Full(),))[0]


@dataclass(frozen=True)
class AnyOf(_Composed, kind="any"):
    """Visible under at least one of ``rules`` (``a | b``)."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return reduce(torch.logical_or, (rule.sees(query, key) for rule in self.rules))


class View:
    """One rule applied to one pass; made once, read by every layer.

    Attributes:
        everything: every query is known to see every key, so no mask is needed.
        triangle: T = S and the mask is known to be the lower triangle.
    """

    def __init__(self, rule: Visibility, query: Tags, key: Tags) -> None:
        self._rule, self._query, self._key = rule, query, key
        (batch, queries), (keys_batch, keys) = query.shape, key.shape
        if batch != keys_batch:
            raise MaskError("queries and keys must come in the same number of rows", value=f"{batch} and {keys_batch}")
        known = query.start is not None and key.start is not None
        last = known and queries == 1 and query.start == (key.start or 0) + keys - 1
        square = known and queries == keys and query.start == key.start
        plain = rule.plain()
        self.everything = known and (plain == Full() or (plain == Causal() and last))
        self.triangle = plain == Causal() and square and not last
        self._biased: tuple[Tensor, Tensor] | None = None

    @cached_property
    def mask(self) -> Tensor:
        """[B, 1, T, S] bool, True where visible."""
        return self._rule.mask(self._query, self._key)[:, None]

    @cached_property
    def blind(self) -> Tensor:
        """[B, 1, T, 1] bool: the query sees no key."""
        return ~self.mask.any(-1, keepdim=True)

    @cached_property
    def opened(self) -> Tensor:
        """The mask with rows that see nothing opened, so that a softmax over them is finite; see `blind`."""
        return self.mask | self.blind

    def biased(self, bias: Tensor) -> Tensor:
        """``bias`` [B|1, H, T, S] with −inf where hidden (rows that see nothing are left open); made once a bias."""
        if self._biased is None or self._biased[0] is not bias:
            self._biased = (bias, bias if self.everything else bias.masked_fill(~self.opened, float("-inf")))
        return self._biased[1]


def _not_after(query: Tags, key: Tags) -> Tensor:
    return key.position[:, None, :] <= query.position[:, :, None]  # [B, T, S], j ≤ i
