"""All keys and values of a batch in one growing buffer a layer.

Axes: B batch, T new, S all, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from transpect.cache.source import SourceKeys
from transpect.core.context import NO_CARRY, Carry
from transpect.core.tags import Tags


class DenseCache:
    """Appends columns; rows may be padded anywhere, since the tags say which columns are real.

    Buffers double when they are full, so n single-token passes copy O(n) numbers in all. For inference: gradients do
    not flow through it.
    """

    def __init__(self) -> None:
        self._tags: Tags | None = None
        self._pending = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._source = SourceKeys()

    @property
    def length(self) -> int:
        """How many columns are held."""
        return 0 if self._tags is None else self._tags.shape[1]

    @property
    def next_position(self) -> Tensor | int:
        """The position after the last real token: a number where all rows agree, else [B, 1]."""
        return 0 if self._tags is None else self._tags.after()

    def admit(self, tags: Tags) -> Tags:
        """Note the new tokens, give the tags of all keys."""
        self._pending = tags.shape[1]
        self._tags = tags if self._tags is None else self._tags.join(tags)
        return self._tags

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add one layer's new keys and values [B, K, T, E]; give all of them [B, K, S, E]."""
        end = self.length
        start = end - self._pending
        return (
            self._append(self._keys, layer, key, start, end),
            self._append(self._values, layer, value, start, end),
        )

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """As `extend`: all keys are here, so nothing else needs to be carried."""
        return *self.extend(layer, key, value), NO_CARRY

    def cross(self, layer: int, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output, computed once a layer."""
        return self._source.get(layer, compute)

    def crop(self, length: int) -> None:
        """Forget all columns from ``length`` on. What is known of an encoder's output stays."""
        if self._tags is None or length >= self.length:
            return
        if length:
            self._tags = self._tags.columns(slice(0, length))
        else:
            self._tags, self._keys, self._values = None, {}, {}

    def forget(self, keep: Tensor) -> None:
        """Forget columns, in each row other ones: they become padding, and the last ones go where no row keeps them.

        Args:
            keep: [B, S] bool, over all columns that are held.
        """
        if self._tags is None:
            return
        wanted = keep.any(0)  # [S]
        last = int(wanted.nonzero()[-1]) + 1 if bool(wanted.any()) else 0
        self.crop(last)
        if self._tags is None or bool((keep := keep[:, :last]).all()):
            return
        tags = self._tags
        # nothing of a forgotten token is left: not that it was in a prefix, or in another document
        self._tags = Tags.of(
            tags.position.masked_fill(~keep, -1),
            segment=tags.segment.masked_fill(~keep, 0),
            prefix=tags.prefix & keep,
            is_global=tags.is_global & keep,
            horizon=tags.horizon,
        )

    def compact(self) -> None:
        """Forget as many columns as every row has of padding, wherever it stands; each row keeps its order.

        Columns are renumbered: lengths noted before are void.
        """
        if self._tags is None:
            return
        real = self._tags.position >= 0  # [B, S]
        longest = int(real.sum(1).max())
        if longest < self.length:
            # of each row: padding first, then its tokens in their order
            order = real.long().argsort(dim=1, stable=True)[:, self.length - longest :]  # [B, S']
            self._tags = _arranged(self._tags, order)
            for store in (self._keys, self._values):
                for layer, buffer in store.items():
                    where = order[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[3])
                    store[layer] = buffer.gather(2, where)
        self._tags = unpadded(self._tags)

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all."""
        if self._tags is not None:
            self._tags = self._tags.rows(rows)
        for store in (self._keys, self._values):
            for layer, buffer in store.items():
                store[layer] = buffer[rows]
        self._source = self._source.rows(rows)

    def fork(self) -> DenseCache:
        """An independent copy."""
        twin = DenseCache()
        twin._tags = self._tags
        twin._keys = {layer: buffer.clone() for layer, buffer in self._keys.items()}
        twin._values = {layer: buffer.clone() for layer, buffer in self._values.items()}
        twin._source = self._source.fork()
        return twin

    @staticmethod
    def _append(store: dict[int, Tensor], layer: int, new: Tensor, start: int, end: int) -> Tensor:
        buffer = store.get(layer)
        if buffer is None or buffer.shape[2] < end:
            batch, heads, _, width = new.shape
            # the first pass is often a whole prompt: leave room for a few tokens, then double
            grown = new.new_empty(batch, heads, max(end + 64, 2 * start), width)
            if buffer is not None:
                grown[:, :, :start] = buffer[:, :, :start]
            buffer = store[layer] = grown
        buffer[:, :, start:end] = new
        return buffer[:, :, :end]


def _arranged(tags: Tags, order: Tensor) -> Tags:
    """Of each row the columns ``order`` [B, S']."""
    return Tags.of(
        tags.position.gather(1, order),
        segment=tags.segment.gather(1, order),
        prefix=tags.prefix.gather(1, order),
        is_global=tags.is_global.gather(1, order),
        horizon=tags.horizon,
    )


def unpadded(tags: Tags) -> Tags:
    """The same tags, with their `start` stated where all rows are one unpadded document without special tokens."""
    if tags.start is not None or 0 in tags.shape:
        return tags
    start = int(tags.position[0, 0])
    consecutive = torch.arange(start, start + tags.shape[1], device=tags.position.device)
    plain = start >= 0 and torch.equal(tags.position, consecutive.expand(tags.shape))
    special = any(bool(tag.any()) for tag in (tags.segment, tags.prefix, tags.is_global))
    return replace(tags, start=start) if plain and not special else tags
