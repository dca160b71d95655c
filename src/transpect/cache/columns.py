"""What caches that hold every column have in common: the tags of the columns.

Axes: B batch, T new, S all, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from transpect.base.errors import MaskError
from transpect.cache.source import SourceKeys
from transpect.core.context import NO_CARRY, Carry
from transpect.core.tags import Tags


class AllColumns:
    """Appends columns; rows may be padded anywhere, since the tags say which columns are real. A child holds the keys
    and values, and does with them what is done with the tags.

    For inference: gradients do not flow through it.
    """

    def __init__(self) -> None:
        self._tags: Tags | None = None
        self._pending = 0
        self._source = SourceKeys()

    def _make_room(self, tags: Tags) -> None:
        """Before new columns are noted: what can't be held is refused here."""

    def _cut(self, length: int) -> None:
        """Forget all columns from ``length`` on."""
        raise AssertionError("abstract")

    def _blank(self, gone: Tensor) -> None:
        """Tokens [B, S] bool have become padding."""

    def _arrange(self, order: Tensor) -> None:
        """Of each row keep the columns ``order`` [B, S'], in that order."""
        raise AssertionError("abstract")

    def _choose(self, rows: Tensor) -> None:
        """Keep these rows [B'], in that order."""
        raise AssertionError("abstract")

    @property
    def length(self) -> int:
        """How many columns are held."""
        return 0 if self._tags is None else self._tags.shape[1]

    @property
    def tags(self) -> Tags | None:
        """Those of all columns; None where nothing is held."""
        return self._tags

    @property
    def next_position(self) -> Tensor | int:
        """The position after the last real token: a number where all rows agree, else [B, 1]."""
        return 0 if self._tags is None else self._tags.after()

    def admit(self, tags: Tags) -> Tags:
        """Note the new tokens, give the tags of all keys."""
        self._make_room(tags)
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
        self._tags = self._tags.columns(slice(0, length)) if length else None
        self._cut(length)

    def forget(self, keep: Tensor) -> None:
        """See `Cache.forget`. What is forgotten before the end of a row takes its place until `compact` or `crop`."""
        if self._tags is None:
            return
        left, gone = forgetting(self._tags, keep)
        self.crop(left)
        gone = gone[:, :left]
        if self._tags is not None and bool(gone.any()):
            self._tags = blanked(self._tags, gone)
            self._blank(gone)

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
            self._arrange(order)
        self._tags = unpadded(self._tags)

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all."""
        if self._tags is not None:
            self._tags = self._tags.rows(rows)
        self._choose(rows)
        self._source = self._source.rows(rows)

    def _copy_to(self, twin: Self) -> Self:
        """Make ``twin`` an independent copy of this."""
        twin._tags, twin._source = self._tags, self._source.fork()
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


def unpadded(tags: Tags) -> Tags:
    """The same tags, with their `start` stated where all rows are one unpadded document without special tokens."""
    if tags.start is not None or 0 in tags.shape:
        return tags
    start = int(tags.position[0, 0])
    consecutive = torch.arange(start, start + tags.shape[1], device=tags.position.device)
    plain = start >= 0 and torch.equal(tags.position, consecutive.expand(tags.shape))
    special = any(bool(tag.any()) for tag in (tags.segment, tags.prefix, tags.is_global))
    return replace(tags, start=start) if plain and not special else tags
