"""What is known of runs of tokens without looking at each: from it, rules of visibility answer for blocks.

Axes: B batch, T tokens, N runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from transpect.core.tags import Tags

FAR = 2**61
"""Beyond every position; differences of two such numbers still fit into 64 bits."""

NUMBERS = torch.iinfo(torch.int64)
"""What a segment may be: any of these, so that nothing lies beyond."""


@dataclass(frozen=True)
class Spans:
    """The range of each tag over each run of ``size`` consecutive columns of `Tags`, padding left out.

    All are [B, N] but the horizon. In a run without a real token lowest is above highest.

    Attributes:
        first: int64, the smallest position.
        last: int64, the largest position.
        segment_low: int64, the smallest segment.
        segment_high: int64, the largest segment.
        any_prefix: bool, whether some token is in the prefix.
        all_prefix: bool, whether every token is.
        any_global: bool, whether some token is global.
        all_global: bool, whether every token is.
        any_real: bool, whether there is a real token.
        all_real: bool, whether there is no padding; of a last, shorter run only its own columns count.
        horizon: [B] int64, as in `Tags`.
    """

    first: Tensor
    last: Tensor
    segment_low: Tensor
    segment_high: Tensor
    any_prefix: Tensor
    all_prefix: Tensor
    any_global: Tensor
    all_global: Tensor
    any_real: Tensor
    all_real: Tensor
    horizon: Tensor

    @classmethod
    def of(cls, tags: Tags, size: int) -> Self:
        """The runs of ``size`` columns; O(T)."""
        assert size > 0
        real = tags.position >= 0
        hidden = _runs(~real, size, fill=True)  # [B, N, size]
        prefix, is_global = (_runs(tag & real, size, fill=False) for tag in (tags.prefix, tags.is_global))
        first, last = _range(tags.position, hidden, FAR, -1)
        segment_low, segment_high = _range(tags.segment, hidden, NUMBERS.max, NUMBERS.min)
        return cls(
            first=first,
            last=last,
            segment_low=segment_low,
            segment_high=segment_high,
            any_prefix=prefix.any(-1),
            all_prefix=(prefix | hidden).all(-1),
            any_global=is_global.any(-1),
            all_global=(is_global | hidden).all(-1),
            any_real=~hidden.all(-1),
            all_real=_runs(real, size, fill=True).all(-1),
            horizon=tags.horizon,
        )


Range = tuple[Tensor, Tensor]
"""A least and a greatest number."""


def gaps(query: Range, key: Range) -> Range:
    """[B, NQ, NK]: the range of i − j for i in the ranges [B, NQ] of queries and j in those [B, NK] of keys."""
    return query[0][:, :, None] - key[1][:, None, :], query[1][:, :, None] - key[0][:, None, :]


def _range(tag: Tensor, hidden: Tensor, above: int, below: int) -> Range:
    runs = _runs(tag, hidden.shape[-1], fill=0)
    return runs.masked_fill(hidden, above).amin(-1), runs.masked_fill(hidden, below).amax(-1)


def _runs(tag: Tensor, size: int, *, fill: float) -> Tensor:
    batch, length = tag.shape
    padded = functional.pad(tag, (0, -length % size), value=fill)
    return padded.reshape(batch, padded.shape[1] // size, size)  # [B, T] -> [B, N, size]
