"""Of each layer the sums over its keys, and no key: a cache of one size, however long the sequence is.

Axes: B batch, T new, K key-value heads, m features, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from transpect.base.errors import ConfigError, MaskError
from transpect.cache.recent import alike, later
from transpect.cache.source import SourceKeys
from transpect.core.context import Carry
from transpect.core.recording import recording
from transpect.core.tags import Tags


class SumsCache:
    """O(B·K·m·E) memory a layer, for models whose self-attention is all by sums (`StackConfig.keeps_sums`).

    A pass attends to the sums and to its own keys, so `admit` gives the tags of these alone; rows may be padded
    anywhere. For inference: gradients do not flow through it.
    """

    def __init__(self) -> None:
        self._length = 0
        self._next: Tensor | int = 0
        self._sums: dict[int, tuple[Tensor, ...]] = {}
        self._source = SourceKeys()

    @property
    def length(self) -> int:
        """How many columns have been read."""
        return self._length

    @property
    def next_position(self) -> Tensor | int:
        """The position after the last real token: a number where all rows agree, else [B, 1]."""
        return self._next

    def admit(self, tags: Tags) -> Tags:
        """Note the new tokens, give their tags.

        Raises:
            MaskError: a token stands before one that has been summed up, so it should not see all that is kept.
        """
        if not recording() and self._precedes(tags):
            raise MaskError("a cache of sums goes on behind what it holds: a token's position must not be before that")
        fresh = tags.after()
        self._next = fresh if isinstance(fresh, int) else later(fresh, self._next)
        self._length += tags.shape[1]
        return tags

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Refused.

        Raises:
            ConfigError: a layer asks for earlier keys.
        """
        raise ConfigError(
            "a cache of sums holds no keys, and softmax attention needs them",
            value=f"layer {layer}",
            remedy="Use DenseCache.",
        )

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """The new keys and values as they are, and what holds the sums of earlier ones."""
        return key, value, _LayerSums(self._sums, layer)

    def cross(self, layer: int, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output, computed once a layer."""
        return self._source.get(layer, compute)

    def crop(self, length: int) -> None:
        """Forget everything (0); what is known of an encoder's output stays.

        Raises:
            ConfigError: some columns should be forgotten and others kept.
        """
        if length >= self._length:
            return
        if length:
            raise ConfigError(
                "a cache of sums can't forget some columns: what has been summed up can't be told apart",
                value=f"crop({length}) of {self._length}",
                remedy="Take a fork before what may be taken back, or use DenseCache.",
            )
        self._length, self._next, self._sums = 0, 0, {}

    def forget(self, keep: Tensor) -> None:
        """Refused, but for nothing and for everything.

        Raises:
            ConfigError: some columns should be forgotten and others kept.
        """
        if keep.shape[1] != self._length or bool(keep.any() & ~keep.all()):
            raise ConfigError(
                "a cache of sums can't forget some columns: what has been summed up can't be told apart",
                value=f"forget({int((~keep).sum())} of {keep.numel()} tokens)",
                remedy="Take a fork before what may be taken back, or use DenseCache.",
            )
        if keep.numel() and not bool(keep.any()):
            self.crop(0)

    def compact(self) -> None:
        """Note where all rows have the same position again; there are no columns to forget."""
        if isinstance(self._next, Tensor):
            self._next = alike(self._next)

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all."""
        if isinstance(self._next, Tensor):
            self._next = self._next[rows]
        self._sums = {layer: tuple(part[rows] for part in sums) for layer, sums in self._sums.items()}
        self._source = self._source.rows(rows)

    def fork(self) -> SumsCache:
        """An independent copy; sums are replaced and never written to, so they are shared."""
        twin = SumsCache()
        twin._length, twin._next = self._length, self._next
        twin._sums, twin._source = dict(self._sums), self._source.fork()
        return twin

    def _precedes(self, tags: Tags) -> bool:
        if tags.start is not None and isinstance(self._next, int):
            return tags.start < self._next
        return bool(((tags.position >= 0) & (tags.position < self._next)).any())


@dataclass(frozen=True)
class _LayerSums:
    """One layer's carry."""

    sums: dict[int, tuple[Tensor, ...]]
    layer: int

    def take(self) -> tuple[Tensor, ...] | None:
        return self.sums.get(self.layer)

    def keep(self, state: tuple[Tensor, ...]) -> None:
        self.sums[self.layer] = tuple(part.detach() for part in state)
