"""What a forward pass knows besides activations: who the tokens are (`Tags`), what came before, who is watching.

Axes: B batch, T query, S key, D model, K key-value heads, E head.

A model is a pure function of weights and `Context`; it keeps no state of its own, so it can be served, compared and
inspected without resets. `core` owns the protocols; `cache` and `inspection` bring implementations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from transpect.core.packing import AS_PADDED, Layout
from transpect.core.tags import Tags


class Carry(Protocol):
    """What a layer takes over from its earlier passes in place of their keys."""

    def take(self) -> tuple[Tensor, ...] | None:
        """What it kept last, [B, …] each; None at the beginning."""

    def keep(self, state: tuple[Tensor, ...]) -> None:
        """Keep this for the next pass."""


class NoCarry:
    """The carry of a layer that is given all keys."""

    def take(self) -> None:
        return None

    def keep(self, state: tuple[Tensor, ...]) -> None:
        pass


NO_CARRY: Carry = NoCarry()


class PassCache(Protocol):
    """What a forward pass asks of a `Cache`."""

    @property
    def length(self) -> int:
        """How many columns are held (padding included)."""

    @property
    def next_position(self) -> Tensor | int:
        """[B, 1] (or one number for all rows) the position that follows the last real token of each row."""

    def admit(self, tags: Tags) -> Tags:
        """Called once a forward pass, before any layer: note the new tokens, give the tags of all keys."""

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add one layer's new keys and values [B, K, T, E]; give all of them [B, K, S, E]."""

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """As `extend` for a layer that needs no keys but those of its `Carry`: give all keys and values that are not in
        it, and it."""

    def cross(self, layer: int, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The keys and values of the encoder's output for one layer, computed at most once."""


class Cache(PassCache, Protocol):
    """Keys and values of tokens already seen. One object serves one batch through all layers.

    Between passes columns may be taken back from the end of each row, and rows chosen; what comes next is then as if
    all that is gone had never been. What a kind of cache can't do it refuses by name (`ConfigError`), and holds what it
    held.
    """

    def crop(self, length: int) -> None:
        """Forget all columns from ``length`` on. What is known of an encoder's output stays."""

    def forget(self, keep: Tensor) -> None:
        """Forget the columns of each row that are False in ``keep`` [B, S] bool, S = `length`; tokens that are left
        keep their positions, and what they knew of those that go. Columns at the end that hold nothing of any row are
        gone afterwards."""

    def compact(self) -> None:
        """Forget columns that hold nothing of any row, and note where rows are alike again. Columns may be renumbered:
        lengths noted before are void."""

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all."""

    def fork(self) -> Cache:
        """An independent copy."""


class Memory(Protocol):
    """Hidden states of earlier segments (Transformer-XL's recurrence), kept outside the model."""

    @property
    def length(self) -> int:
        """How many earlier columns are remembered."""

    @property
    def next_position(self) -> Tensor | int:
        """As for `Cache`."""

    def admit(self, tags: Tags) -> Tags:
        """Called once a forward pass: give the tags of remembered and new tokens together."""

    def extend(self, layer: int, hidden: Tensor) -> Tensor:
        """Remember one layer's input [B, T, D]; give what was remembered and it together [B, M+T, D]."""


class Tap(Protocol):
    """Sees named tensors as they pass; may not change them."""

    def see(self, name: str, value: Tensor) -> None:
        """``name`` is dotted, e.g. ``decoder.3.self.attention_weights``."""


class _NoPast:
    """A cache and a memory that hold nothing."""

    length = 0
    next_position = 0

    def admit(self, tags: Tags) -> Tags:
        return tags

    def cross(self, layer: int, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return compute()


class NoCache(_NoPast):
    """The cache of a pass without past and future."""

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return key, value

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        return key, value, NO_CARRY

    def crop(self, length: int) -> None:
        pass

    def forget(self, keep: Tensor) -> None:
        pass

    def compact(self) -> None:
        pass

    def select(self, rows: Tensor) -> None:
        pass

    def fork(self) -> Cache:
        return self


class NoMemory(_NoPast):
    """The memory of a model that starts anew."""

    def extend(self, layer: int, hidden: Tensor) -> Tensor:
        return hidden


class Named:
    """A tap that puts a name before every name."""

    def __init__(self, name: str, tap: Tap) -> None:
        self._name, self._tap = name, tap

    def see(self, name: str, value: Tensor) -> None:
        self._tap.see(f"{self._name}.{name}", value)


class NoTap:
    """Nobody is watching."""

    def see(self, name: str, value: Tensor) -> None:
        pass


NO_CACHE: Cache = NoCache()
NO_MEMORY: Memory = NoMemory()
NO_TAP: Tap = NoTap()


@dataclass(frozen=True)
class Source:
    """What cross-attention looks at: an encoder's output [B, S, D] and the tags of its tokens."""

    hidden: Tensor
    tags: Tags

    def rows(self, index: Tensor) -> Source:
        """The rows ``index`` of the batch, in that order."""
        return Source(self.hidden[index], self.tags.rows(index))


NO_SOURCE = Source(torch.empty(0, 0, 0), Tags.dense(0, 0))


@dataclass(frozen=True)
class Context:
    """All that a forward pass knows besides activations."""

    tags: Tags
    source: Source = field(default=NO_SOURCE)
    cache: PassCache = NO_CACHE
    memory: Memory = NO_MEMORY
    tap: Tap = NO_TAP
    layout: Layout = AS_PADDED
