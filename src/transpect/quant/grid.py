"""The numbers that a group of weights may become, w = q·scale + offset with whole q, and the search for the best.

Axes: N out, D in, G groups of a row, g weights of a group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Store = Callable[[Tensor], Tensor]
"""What a scale becomes when it is kept."""


@dataclass(frozen=True)
class Search:
    """How grids are looked for.

    Attributes:
        clips: shares of a group's range that are tried: what lies outside is held at the edge, so that the rest lies
            closer.
        fitted: scales are fitted to the codes by least squares; False leaves them as the range says.
    """

    clips: tuple[float, ...] = tuple(1 - 0.05 * step for step in range(9))
    fitted: bool = True


SEARCH = Search()
PLAIN = Search((1.0,), fitted=False)
"""From the least weight to the largest, as most writers round."""


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


Tried = tuple[Grid, Tensor]
Attempt = Callable[["Group", float, bool], Tried]


def best(
    weight: Tensor,
    importance: Tensor | None,
    group: int,
    search: Search,
    attempt: Callable[[Group, float, bool], Tried],
) -> Grid:
    """Of several grids a group, that with the least Σ importance·(w − value)².

    Args:
        weight: [N, D].
        importance: [D] or [N, D], how much an error of each weight counts; None is the same for all.
        group: g.
        search: which are tried.
        attempt: gives a grid for a share of the range, fitted or not, and its error for the codes that it had then.
    """
    count = None if importance is None else parted(importance.to(weight).expand_as(weight), (-1, group))
    parts = Group(parted(weight, (-1, group)), count)
    first, *others = search.clips
    chosen, least = attempt(parts, first, search.fitted)
    for clip in others:
        grid, error = attempt(parts, clip, search.fitted)
        better = error < least
        least = torch.where(better, error, least)
        scale, offset = (
            torch.where(better, new, old) for new, old in ((grid.scale, chosen.scale), (grid.offset, chosen.offset))
        )
        chosen = Grid(scale, offset, grid.low, grid.high)
    return chosen


@dataclass(frozen=True)
class Group:
    """Attributes:
    weight: [N, G, g].
    count: how much an error of each counts, [N, G, g]; None is the same for all.
    """

    weight: Tensor
    count: Tensor | None

    def sum(self, x: Tensor) -> Tensor:
        """Σ count·x of each group, [N, G]."""
        return (x if self.count is None else self.count * x).sum(-1)

    def along(self, q: Tensor, scale: Tensor, store: Store, fitted: bool) -> tuple[Tensor, Tensor]:
        """The scale s that is kept for values q·s, [N, G], and Σ count·(w − q·s)² without the part that q leaves.

        Args:
            q: [N, G, g].
            scale: what s was when q was chosen.
            store: how it is kept.
            fitted: by least squares; where all q are 0 it stays as it was.
        """
        square, product = self.sum(q * q), self.sum(q * self.weight)
        if fitted:
            scale = torch.where(square == 0, scale, product / torch.where(square == 0, 1.0, square))
        kept = store(scale)
        return kept, kept * (kept * square - 2 * product)


def symmetric(low: int, high: int, store: Store, zero: int = 0) -> Attempt:
    """Grids about 0 whose farther end is the weight of the largest magnitude.

    Args:
        low, high: of q − zero.
        store: how a scale is kept.
        zero: the q that means 0.
    """

    def attempt(group: Group, clip: float, fitted: bool) -> Tried:
        least, most = group.weight.aminmax(dim=-1)  # [N, G]
        peak = torch.where(most > -least, most, least)
        # the longer half of an uneven range goes to the side of the peak, as in llama.cpp's Q4_0
        scale = (peak / low if -low > high else peak.abs() / high) * clip
        safe = torch.where(scale == 0, 1.0, scale)
        q = (group.weight / safe[..., None]).round_().clamp_(low, high)
        scale, error = group.along(q, scale, store, fitted)
        return Grid(scale, -zero * scale, low + zero, high + zero), error

    return attempt
