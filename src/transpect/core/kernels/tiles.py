"""The scores of attention, tile by tile, and the gradients that flow back through a tile.

Axes: B batch, T query, S key (t and s of a tile), H heads, K key-value heads, G = H/K, E head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.core.kernels.base import Scoring
from transpect.core.plan import Tile
from transpect.core.tags import Columns
from transpect.core.view import View


@dataclass(frozen=True)
class TileScores:
    """The scores of one call.

    Attributes:
        view: who sees whom.
        scoring: how a query scores a key.
        seed: of the weights that are dropped; each tile draws by its number, so that both passes drop the same.
    """

    view: View
    scoring: Scoring
    seed: int

    def of(self, query: Tensor, key: Tensor, inputs: tuple[Tensor, ...], tile: Tile) -> Tensor:
        """[B, K, G, t, E] and [B, K, s, E] -> scores [B, K, G, t, s], at least in float32, −inf where hidden."""
        scores = self._capped(query, key)
        bias = self.scoring.bias
        if bias is not None:
            part = bias.tile(bias.narrow(inputs, tile.rows, tile.columns), tile.rows, tile.columns)
            scores.flatten(1, 2).add_(part)  # a view, [B, H, t, s]
        mask = None if tile.whole else self.view.tile(tile.rows, tile.columns)
        if mask is not None:  # the lower of a score and ±inf is many times faster than masked_fill
            bound = torch.where(mask, math.inf, -math.inf).to(scores.dtype)[:, :, None]
            torch.minimum(scores, bound, out=scores)
        return scores

    def dropped(self, weights: Tensor, number: int) -> Tensor:
        """0 where a weight is dropped, weight/(1−dropout) elsewhere."""
        if not self.scoring.dropout:
            return weights
        generator = torch.Generator(weights.device).manual_seed(self.seed + number)
        keep = 1.0 - self.scoring.dropout
        return torch.empty_like(weights).bernoulli_(keep, generator=generator).div_(keep).mul_(weights)

    def backward(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        inputs: tuple[Tensor, ...],
        sums: tuple[Tensor, ...],
        tile: Tile,
    ) -> tuple[Tensor, Tensor]:
        """From the gradients of a tile's scores to those of its queries and keys. Those of the bias go to ``sums``."""
        if sums:
            self._backward_of_bias(grad, inputs, sums, tile)
        cap = self.scoring.soft_cap
        if cap is not None:  # d tanh = 1 − tanh²
            grad = grad * (1.0 - (self._capped(query, key) / cap).square_())
        grad = grad.to(query.dtype)
        of_query = product(grad, key) * self.scoring.scale
        of_key = grad.flatten(2, 3).mT @ (query * self.scoring.scale).flatten(2, 3)
        return of_query, of_key

    def _capped(self, query: Tensor, key: Tensor) -> Tensor:
        scores = product(query * self.scoring.scale, key.mT)
        scores = scores.to(wide_dtype(scores))
        cap = self.scoring.soft_cap
        return scores if cap is None else scores.div_(cap).tanh_().mul_(cap)

    def _backward_of_bias(self, grad: Tensor, inputs: tuple[Tensor, ...], sums: tuple[Tensor, ...], tile: Tile) -> None:
        bias = self.scoring.bias
        assert bias is not None
        with torch.enable_grad():
            # as precise as the sums: those of many tiles would stand still in half precision
            narrow = tuple(
                x.detach().to(wide_dtype(x)).requires_grad_() for x in bias.narrow(inputs, tile.rows, tile.columns)
            )
            part = bias.tile(narrow, tile.rows, tile.columns)
        upward = grad.flatten(1, 2).to(part.dtype).sum_to_size(part.shape)  # [B|1, H|1, t, s]
        totals = bias.narrow(sums, tile.rows, tile.columns)
        for total, more in zip(totals, torch.autograd.grad(part, narrow, upward), strict=True):
            total.add_(more)


def fold(query: Tensor, key: Tensor) -> Tensor:
    """[B, H, T, E] -> [B, K, G, T, E]: the queries that share a key-value head side by side."""
    batch, heads, length, width = query.shape
    return query.reshape(batch, key.shape[1], heads // key.shape[1], length, width)


def product(left: Tensor, right: Tensor) -> Tensor:
    """[B, K, G, t, n] @ [B, K, n, m] -> [B, K, G, t, m], without a copy of ``right`` for each query head."""
    return (left.flatten(2, 3) @ right).view(*left.shape[:4], right.shape[-1])


def exponential_(x: Tensor) -> Tensor:
    """exp(x), in place: by powers of two, since some builds' exp takes ten times as long where it gives about 0."""
    return x.mul_(math.log2(math.e)).exp2_()


def add_to(total: Tensor, columns: Columns, part: Tensor) -> None:
    """total[:, :, columns] += part; [B, K, S, E] and [B, K, s, E]."""
    if isinstance(columns, Tensor):
        total.index_add_(2, columns, part)
    else:
        total[:, :, columns] += part


def wide_dtype(x: Tensor) -> torch.dtype:
    """What sums are kept in: float32, or float64 where ``x`` is."""
    return torch.promote_types(x.dtype, torch.float32)
