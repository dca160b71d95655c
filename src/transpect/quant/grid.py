"""The numbers that a group of weights may become, w = q·scale + offset with whole q, and the search for the best.

Axes: N out, D in, G groups of a row, g weights of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

Fit = Callable[[Tensor], "Grid"]

CLIPS = tuple(1 - 0.025 * step for step in range(17))
"""Shares of a group's range that are tried: what lies outside is held at the edge, so that the rest lies closer."""


@dataclass(frozen=True)
class Grid:
    """Attributes:
    scale, offset: [N, G].
    low, high: the least and the largest q.
    """

    scale: Tensor
    offset: Tensor
    low: int
    high: int

    def codes(self, weight: Tensor) -> Tensor:
        """The nearest q of each of [N, D], whole numbers in the weights' dtype."""
        grouped = parted(weight, (self.scale.shape[-1], -1))  # [N, G, g]
        return self.nearest(grouped, self.scale[..., None], self.offset[..., None]).flatten(-2)

    def nearest(self, weight: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        """round((w − offset) / scale) within low … high; 0 where the scale is 0."""
        safe = torch.where(scale == 0, 1.0, scale)
        q = torch.where(scale == 0, 0.0, (weight - offset) / safe)
        return q.round().clamp(self.low, self.high)

    def values(self, codes: Tensor) -> Tensor:
        """q·scale + offset, [N, D]."""
        grouped = parted(codes, (self.scale.shape[-1], -1)).to(self.scale.dtype)
        return (grouped * self.scale[..., None] + self.offset[..., None]).flatten(-2)


def parted(x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """[..., D] -> [..., *sizes]."""
    return x.reshape(*x.shape[:-1], *sizes)


def best(
    weight: Tensor, importance: Tensor | None, group: int, tries: Iterable[Callable[[Tensor, Tensor], Grid]]
) -> Grid:
    """Of several grids a group, that with the least Σ importance·(w − value)².

    Args:
        weight: [N, D].
        importance: [D] or [N, D], how much an error of each weight counts; None is the same for all.
        group: g.
        tries: each gives a grid from the grouped weights and their importance [N, G, g].
    """
    grouped = parted(weight, (-1, group))  # [N, G, g]
    count = torch.ones_like(weight) if importance is None else importance.to(weight).expand_as(weight)
    count = parted(count, (-1, group))
    chosen: Grid | None = None
    least = grouped.new_full(grouped.shape[:-1], torch.inf)
    for attempt in tries:
        grid = attempt(grouped, count)
        q = grid.nearest(grouped, grid.scale[..., None], grid.offset[..., None])
        error = (count * (q * grid.scale[..., None] + grid.offset[..., None] - grouped).square()).sum(-1)
        better = error < least
        least = torch.where(better, error, least)
        if chosen is None:
            chosen = grid
        else:
            scale = torch.where(better, grid.scale, chosen.scale)
            chosen = Grid(scale, torch.where(better, grid.offset, chosen.offset), grid.low, grid.high)
    assert chosen is not None
    return chosen


def symmetric(
    low: int, high: int, store: Callable[[Tensor], Tensor], clip: float, zero: int = 0
) -> Callable[[Tensor, Tensor], Grid]:
    """A grid about 0 whose farther end is the weight of the largest magnitude, clipped, then fitted by least squares.

    Args:
        low, high: of q − zero.
        store: what a scale becomes when it is kept.
        clip: share of the range.
        zero: the q that means 0.
    """

    def attempt(grouped: Tensor, count: Tensor) -> Grid:
        peak = grouped.gather(-1, grouped.abs().argmax(-1, keepdim=True))[..., 0]  # [N, G]
        # the longer half of an uneven range goes to the side of the peak, as in llama.cpp's Q4_0
        scale = peak / low if -low > high else peak.abs() / high
        grid = Grid(scale * clip, torch.zeros_like(scale), low, high)
        q = grid.nearest(grouped, grid.scale[..., None], grid.offset[..., None])
        square = (count * q * q).sum(-1)
        fitted = (count * q * grouped).sum(-1) / torch.where(square == 0, 1.0, square)
        scale = store(torch.where(square == 0, grid.scale, fitted))
        return Grid(scale, -zero * scale, low + zero, high + zero)

    return attempt
