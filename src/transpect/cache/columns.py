"""What caches that hold every column have in common: the tags of the columns, and buffers that grow with them.

Axes: B batch, T new, S all, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Self

import torch
from torch import Tensor

from transpect.base.errors import MaskError
from transpect.cache.source import SourceKeys
from transpect.core.context import NO_CARRY, Carry
from transpect.core.tags import Tags


class Buffers:
    """Numbers of all columns, one tensor [B, K, S, …] a layer.

    Buffers double when they are full, so n single-token passes copy O(n) numbers in all.
    """

    def __init__(self) -> None:
        self._of_layer: dict[int, Tensor] = {}

    def append(self, layer: int, new: Tensor, start: int) -> Tensor:
        """Put ``new`` [B, K, T, …] behind the first ``start`` columns; give all of them."""
        buffer, end = self._of_layer.get(layer), start + new.shape[2]
        if buffer is None or buffer.shape[2] < end:
            batch, heads, _, *rest = new.shape
            # the first pass is often a whole prompt: leave room for a few tokens, then double
            grown = new.new_empty(batch, heads, max(end + 64, 2 * start), *rest)
            if buffer is not None:
                grown[:, :, :start] = buffer[:, :, :start]
            buffer = self._of_layer[layer] = grown
        buffer[:, :, start:end] = new
        return buffer[:, :, :end]

    def change(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace each layer's buffer, which ``change`` must not share."""
        self._of_layer = {layer: change(buffer) for layer, buffer in self._of_layer.items()}

    def clear(self) -> None:
        """Forget everything."""
        self._of_layer = {}

    def fork(self) -> Buffers:
        """An independent copy."""
        twin = Buffers()
        twin._of_layer = {layer: buffer.clone() for layer, buffer in self._of_layer.items()}
        return twin

    def columns(self, length: int) -> dict[int, Tensor]:
        """The first ``length`` columns of each layer, as views."""
        return {layer: buffer[:, :, :length] for layer, buffer in self._of_layer.items()}

    @property
    def nbytes(self) -> int:
        """Memory in bytes, room that is not yet used included."""
        return sum(buffer.nbytes for buffer in self._of_layer.values())


class AllColumns:
    """Appends columns; rows may be padded anywhere, since the tags say which columns are real. A child says in which
    `Buffers` what is kept of a column.

    For inference: gradients do not flow through it.
    """

    def __init__(self, n_buffers: int) -> None:
        self._tags: Tags | None = None
        self._pending = 0
        self._buffers = [Buffers() for _ in range(n_buffers)]
        self._source = SourceKeys()

    @property
    def length(self) -> int:
        """How many columns are held."""
        return 0 if self._tags is None else self._tags.shape[1]

    @property
    def tags(self) -> Tags | None:
        """Those of all columns; None where nothing is held."""
        return self._tags

    def columns(self) -> list[dict[int, Tensor]]:
        """What each of the buffers holds of each layer, as views."""
        return [buffers.columns(self.length) for buffers in self._buffers]

    @property
    def nbytes(self) -> int:
        """Memory of the buffers in bytes."""
        return sum(buffers.nbytes for buffers in self._buffers)

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
        raise AssertionError("abstract")

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
            return
        self._tags = None
        for buffers in self._buffers:
            buffers.clear()

    def forget(self, keep: Tensor) -> None:
        """See `Cache.forget`. What is forgotten before the end of a row takes its place until `compact` or `crop`."""
        if self._tags is None:
            return
        left, gone = forgetting(self._tags, keep)
        self.crop(left)
        gone = gone[:, :left]
        if self._tags is not None and bool(gone.any()):
            self._tags = blanked(self._tags, gone)

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
            self._tags = arranged(self._tags, order)
            for buffers in self._buffers:
                buffers.change(partial(_gather, order=order))
        self._tags = unpadded(self._tags)

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all."""
        if self._tags is not None:
            self._tags = self._tags.rows(rows)
        for buffers in self._buffers:
            buffers.change(lambda buffer: buffer[rows])
        self._source = self._source.rows(rows)

    def _copy_to(self, twin: Self) -> Self:
        """Make ``twin`` an independent copy of this."""
        twin._tags, twin._source = self._tags, self._source.fork()
        twin._buffers = [buffers.fork() for buffers in self._buffers]
        return twin


def forgetting(tags: Tags, keep: Tensor) -> tuple[int, Tensor]:
    """What `Cache.forget` comes to.

    Returns:
        how many columns are left: up to the last of which some row keeps a token.
        [B, S] bool, the tokens that go.

    Raises:
        MaskError: a mask of another shape or dtype.
    """
    if keep.dtype != torch.bool or keep.shape != tags.position.shape:
        raise MaskError(
            "what is kept must be said of each column held, as [B, S] of torch.bool",
            value=f"{list(keep.shape)} of {keep.dtype} for {list(tags.shape)}",
        )
    real = tags.position >= 0
    left = (real & keep).any(0).nonzero()
    return int(left[-1]) + 1 if len(left) else 0, real & ~keep


def blanked(tags: Tags, gone: Tensor) -> Tags:
    """The same tags with padding where ``gone`` [B, S]: nothing of these tokens is left, not that one was in a prefix
    or in another document."""
    return Tags.of(
        tags.position.masked_fill(gone, -1),
        segment=tags.segment.masked_fill(gone, 0),
        prefix=tags.prefix & ~gone,
        is_global=tags.is_global & ~gone,
        horizon=tags.horizon,
    )


def arranged(tags: Tags, order: Tensor) -> Tags:
    """Of each row the columns ``order`` [B, S']."""
    return Tags.of(
        tags.position.gather(1, order),
        segment=tags.segment.gather(1, order),
        prefix=tags.prefix.gather(1, order),
        is_global=tags.is_global.gather(1, order),
        horizon=tags.horizon,
    )


def _gather(buffer: Tensor, order: Tensor) -> Tensor:
    where = order[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[3])
    return buffer.gather(2, where)


def unpadded(tags: Tags) -> Tags:
    """The same tags, with their `start` stated where all rows are one unpadded document without special tokens."""
    if tags.start is not None or 0 in tags.shape:
        return tags
    start = int(tags.position[0, 0])
    consecutive = torch.arange(start, start + tags.shape[1], device=tags.position.device)
    plain = start >= 0 and torch.equal(tags.position, consecutive.expand(tags.shape))
    special = any(bool(tag.any()) for tag in (tags.segment, tags.prefix, tags.is_global))
    return replace(tags, start=start) if plain and not special else tags
