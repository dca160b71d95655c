"""What positions add to the scaled scores, computed for any part of them, so that nobody needs all of it at once.

Axes: B batch, T query, S key (t and s of a part), H heads, E head, N distances.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from transpect.core.tags import Columns, Tags

EVERY = slice(None)


class Bias:
    """[B|1, H|1, T, S], of which `tile` gives a part.

    Attributes:
        inputs: the tensors that it is differentiable in. A kernel that computes a part anew in its backward pass hands
            them in again, so that it can ask for the gradients of that part alone.
    """

    inputs: tuple[Tensor, ...] = ()

    def narrow(self, inputs: tuple[Tensor, ...], rows: slice, columns: Columns) -> tuple[Tensor, ...]:
        """Views of what a part reads of ``inputs``, or of tensors of their shapes; the base reads all."""
        return inputs

    def tile(self, narrow: tuple[Tensor, ...], rows: slice, columns: Columns) -> Tensor:
        """The part for some queries and some keys, [B|1, H|1, t, s], from what `narrow` gave."""
        raise AssertionError("abstract")

    _whole: Tensor | None = None

    @property
    def whole(self) -> Tensor:
        """All of it, made once (`lacks_gradient`)."""
        if self._whole is None or lacks_gradient(self._whole, self.inputs):
            self._whole = self.tile(self.narrow(self.inputs, EVERY, EVERY), EVERY, EVERY)
        return self._whole


def lacks_gradient(made: Tensor, inputs: tuple[Tensor, ...]) -> bool:
    """Whether it was made under `torch.no_grad` and its gradient is wanted now, as where a layer that was computed so
    is computed anew in the backward pass: taken as it is, its inputs would silently not be trained."""
    return torch.is_grad_enabled() and not made.requires_grad and any(x.requires_grad for x in inputs)


class Distances:
    """query position − key position, for any part of the scores; padding counts as position 0."""

    def __init__(self, query: Tags, key: Tags) -> None:
        known = query.start is not None and key.start is not None
        self.ahead = (query.start or 0) - (key.start or 0) if known else None
        rows = slice(0, 1) if known else EVERY  # those that are known to be alike are one
        self.query = query.position[rows].clamp(min=0)  # [B|1, T]
        self.key = key.position[rows].clamp(min=0)  # [B|1, S]

    def tile(self, rows: slice, columns: Columns) -> Tensor:
        """[B|1, t, s]."""
        return self.query[:, rows, None] - self.key[:, None, columns]

    @cached_property
    def reach(self) -> tuple[int, int]:
        """The smallest and the largest distance that can occur; known without waiting for the device where rows have
        no padding."""
        if self.ahead is not None:
            low = self.ahead - self.key.shape[1] + 1
            return low, max(self.ahead + self.query.shape[1], low) - 1
        query, key = (int(position.amax()) if position.numel() else 0 for position in (self.query, self.key))
        return -key, query

    def span(self, rows: slice, columns: Columns) -> tuple[int, int] | None:
        """The smallest and the largest distance of a part whose positions are known to be consecutive, so that each of
        its diagonals has one distance; else None. `skewed` brings numbers for diagonals to their places."""
        if self.ahead is None or isinstance(columns, Tensor):
            return None
        query, key = (range(tags.shape[1])[which] for tags, which in ((self.query, rows), (self.key, columns)))
        if not query or not key:
            return None
        return self.ahead + query[0] - key[-1], self.ahead + query[-1] - key[0]


def skewed(diagonals: Tensor, rows: int) -> Tensor:
    """Numbers for the diagonals of a part, the largest distance (lower left) first, brought to their places:
    [..., t, t+s−1] -> [..., t, s], row i from its column t−1−i on (Dai et al. 2019, appendix B).

    Read as one long row of which each line is taken one number too short, each line starts one to the left.
    """
    if rows == 1:
        return diagonals
    count = diagonals.shape[-1]
    flat = diagonals.reshape(*diagonals.shape[:-2], rows * count)
    shifted = flat.narrow(-1, rows - 1, rows * (count - 1)).reshape(*diagonals.shape[:-2], rows, count - 1)
    return shifted[..., : count - rows + 1]


class DistanceBias(Bias):
    """A number for each distance and head.

    Args:
        distances: of the tokens.
        of: inputs and distances [...] -> [..., H].
        inputs: what it is differentiable in.
    """

    def __init__(
        self,
        distances: Distances,
        of: Callable[[tuple[Tensor, ...], Tensor], Tensor],
        inputs: tuple[Tensor, ...] = (),
    ) -> None:
        self.distances, self.of, self.inputs = distances, of, inputs

    _table: Tensor | None = None

    @property
    def table(self) -> Tensor:
        """[N, H], of the distances from the smallest (`Distances.reach`) to the largest; made once
        (`lacks_gradient`)."""
        if self._table is None or lacks_gradient(self._table, self.inputs):
            low, high = self.distances.reach
            self._table = self.of(self.inputs, torch.arange(low, high + 1, device=self.distances.query.device))
        return self._table

    def tile(self, narrow: tuple[Tensor, ...], rows: slice, columns: Columns) -> Tensor:
        span = self.distances.span(rows, columns)
        if span is None:
            return self.of(narrow, self.distances.tile(rows, columns)).movedim(-1, 1).contiguous()
        values = self.of(narrow, descending(*span, self.distances.query.device))  # [t+s−1, H]
        queries = self.distances.query[:, rows].shape[1]
        return skewed(values.t()[None, :, None].expand(-1, -1, queries, -1), queries)


class QueryBias(Bias):
    """query_i · relative(distance), scaled: a number for each query, distance and head.

    Args:
        distances: of the tokens.
        query: [B, H, T, E].
        relative: [N, H, E], of the distances from ``low`` on.
        low: the smallest distance.
        scale: factor.
    """

    def __init__(self, distances: Distances, query: Tensor, relative: Tensor, low: int, scale: float) -> None:
        self.distances, self.low, self.scale = distances, low, scale
        common = torch.promote_types(query.dtype, relative.dtype)  # autocast makes one of lower precision
        self.inputs = (query.to(common), relative.to(common))

    def narrow(self, inputs: tuple[Tensor, ...], rows: slice, columns: Columns) -> tuple[Tensor, ...]:
        query, relative = inputs
        span = self.distances.span(rows, columns)
        occurring = EVERY if span is None else slice(span[0] - self.low, span[1] - self.low + 1)
        return query[:, :, rows], relative[occurring]

    def tile(self, narrow: tuple[Tensor, ...], rows: slice, columns: Columns) -> Tensor:
        query, relative = narrow  # [B, H, t, E] and [n, H, E]
        relative = relative.permute(1, 2, 0)
        if self.distances.span(rows, columns) is not None:
            return skewed(query * self.scale @ relative.flip(-1), query.shape[2])
        scores = query * self.scale @ relative  # [B, H, t, N]
        index = (self.distances.tile(rows, columns) - self.low)[:, None]  # [B|1, 1, t, s]
        return scores.gather(-1, index.expand(*scores.shape[:3], -1))


def descending(low: int, high: int, device: torch.device) -> Tensor:
    """high, high−1, … low."""
    return torch.arange(high, low - 1, -1, device=device)
