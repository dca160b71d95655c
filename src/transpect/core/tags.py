"""Who the tokens of a pass are: what rules of visibility and positions read.

Axes: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from transpect.base.errors import MaskError

Columns = slice | Tensor
"""A run of columns, or an index [n] int64 of columns, the same for every row of a batch."""


@dataclass(frozen=True)
class Tags:
    """What each token is, for the rules of visibility and for positions.

    Attributes:
        position: [B, T] int64, the position within its sequence; −1 is padding.
        segment: [B, T] int64, which packed document the token belongs to.
        prefix: [B, T] bool, whether it belongs to a prefix that sees itself both ways.
        is_global: [B, T] bool, whether it sees all and is seen by all under rules that know such tokens.
        horizon: [B] int64, the length that each row's sequence will reach, the longest where it holds several. Only
            what depends on the whole length reads it: dynamic NTK, LongRoPE, blocks that are counted from the end.
            Generation states it ahead, so that cached equals uncached.
        start: the position of column 0 when every row is ``start, start+1, …`` without padding, prefix, global token or
            second document; None when that is not known. Kernels use it to choose a path, never to decide what is
            visible.
    """

    position: Tensor
    segment: Tensor
    prefix: Tensor
    is_global: Tensor
    horizon: Tensor
    start: int | None = None

    @classmethod
    def dense(cls, batch: int, length: int, *, start: int = 0, device: torch.device | str | None = None) -> Self:
        """Rows without padding: positions ``start … start+length−1``."""
        position = torch.arange(start, start + length, device=device).expand(batch, length)
        horizon = torch.full((batch,), start + length, device=device)
        nowhere = position.new_zeros((), dtype=torch.bool).expand(batch, length)
        return cls(position, position.new_zeros(()).expand(batch, length), nowhere, nowhere, horizon, start)

    @classmethod
    def of(
        cls,
        position: Tensor,
        *,
        segment: Tensor | None = None,
        prefix: Tensor | None = None,
        is_global: Tensor | None = None,
        horizon: Tensor | None = None,
    ) -> Self:
        """Tags from explicit positions [B, T]; the others default to one document, nothing special, no known future.

        Raises:
            MaskError: a tag of another shape or dtype than it should have.
        """
        _check(position, "position", position, torch.int64)
        segment = torch.zeros_like(position) if segment is None else segment
        nowhere = torch.zeros_like(position, dtype=torch.bool)
        prefix = nowhere if prefix is None else prefix
        is_global = nowhere if is_global is None else is_global
        _check(segment, "segment", position, torch.int64)
        _check(prefix, "prefix", position, torch.bool)
        _check(is_global, "is_global", position, torch.bool)
        horizon = _lengths(position) if horizon is None else horizon
        return cls(position, segment, prefix, is_global, horizon, None)

    @classmethod
    def padded(cls, is_token: Tensor, **tags: Tensor | None) -> Self:
        """Tags of padded rows: the real tokens are numbered 0, 1, … wherever the padding stands.

        Args:
            is_token: [B, T] bool, True for a real token, False for padding.

        Raises:
            MaskError: a float or 0/1 mask; which value means "keep" differs between libraries, so it is not guessed.
        """
        if is_token.dtype != torch.bool:
            raise MaskError(
                "a padding mask must be bool, True for a real token: which of 0 and 1 means `keep` is not guessed",
                value=f"dtype {is_token.dtype}",
                remedy="Pass `mask == 1` for a 1/0 keep-mask, `mask == 0` for an additive 0/−inf mask.",
            )
        position = (is_token.long().cumsum(-1) - 1).masked_fill(~is_token, -1)
        return cls.of(position, **tags)

    @property
    def shape(self) -> tuple[int, int]:
        """(B, T)."""
        batch, length = self.position.shape
        return batch, length

    def join(self, later: Tags) -> Tags:
        """These tokens followed by ``later`` ones of the same rows; the horizon stays the one stated first."""
        together = self.start is not None and later.start == self.start + self.position.shape[1]
        return Tags(
            torch.cat([self.position, later.position], 1),
            torch.cat([self.segment, later.segment], 1),
            torch.cat([self.prefix, later.prefix], 1),
            torch.cat([self.is_global, later.is_global], 1),
            self.horizon,
            self.start if together else None,
        )

    def after(self) -> Tensor | int:
        """The position that follows each row's last real token: a number where all rows agree, else [B, 1].

        Raises:
            MaskError: a row of several packed documents, of which any might go on.
        """
        if self.start is not None:
            return self.start + self.shape[1]
        real = self.position >= 0
        first = (
            self.segment.masked_fill(~real, torch.iinfo(torch.int64).max).amin(-1, keepdim=True)
            if self.shape[1]
            else self.segment
        )
        if bool((real & (self.segment != first)).any()):
            raise MaskError(
                "a row of several packed documents has no single next position",
                remedy="State the tags of the tokens that follow.",
            )
        return _lengths(self.position)[:, None]

    def columns(self, which: Columns) -> Tags:
        """These columns of every row; the horizon stays."""
        start = None
        if isinstance(which, slice):
            assert which.step in (None, 1)
            start = None if self.start is None else self.start + which.indices(self.shape[1])[0]
        return Tags(
            self.position[:, which],
            self.segment[:, which],
            self.prefix[:, which],
            self.is_global[:, which],
            self.horizon,
            start,
        )

    def rows(self, index: Tensor) -> Tags:
        """The rows ``index`` of the batch, in that order."""
        return self._each(lambda tag: tag[index])

    def spread(self, dim: int) -> Tags:
        """The same tags with one axis more, [B, T, 1] for ``dim`` −1 or [B, 1, T] for −2, and the horizon [B, 1, 1]:
        those of queries and keys then broadcast to a number for each pair."""
        position, segment, prefix, is_global = (
            tag.unsqueeze(dim) for tag in (self.position, self.segment, self.prefix, self.is_global)
        )
        return Tags(position, segment, prefix, is_global, self.horizon[:, None, None])

    def token(self, row: Tensor, column: Tensor) -> Tags:
        """Those of single tokens; all fields have the shape of the two indices."""
        position, segment, prefix, is_global = (
            tag[row, column] for tag in (self.position, self.segment, self.prefix, self.is_global)
        )
        return Tags(position, segment, prefix, is_global, self.horizon[row])

    def to(self, device: torch.device | str) -> Tags:
        """The same tags on a device."""
        return self._each(lambda tag: tag.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Tags:
        tags = (self.position, self.segment, self.prefix, self.is_global, self.horizon)
        position, segment, prefix, is_global, horizon = map(change, tags)
        return Tags(position, segment, prefix, is_global, horizon, self.start)


def _lengths(position: Tensor) -> Tensor:
    """[B]: the position after the last real token; 0 for a row without any."""
    return position.amax(-1).clamp(min=-1) + 1 if position.shape[1] else position.new_zeros(len(position))


def _check(tag: Tensor, name: str, like: Tensor, dtype: torch.dtype) -> None:
    if tag.ndim != 2 or tag.shape != like.shape or tag.dtype != dtype:
        raise MaskError(
            f"the tag `{name}` must be [B, T] of {dtype}",
            value=f"{list(tag.shape)} of {tag.dtype}",
            remedy="Give every token one value; padding has position −1.",
        )
