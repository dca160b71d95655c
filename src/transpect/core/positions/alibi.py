"""Attention with linear biases (Press et al. 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.checks import above
from transpect.core.bias import DistanceBias, Distances
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, Scores
from transpect.core.tags import Tags


@dataclass(frozen=True)
class Alibi(Position, kind="alibi"):
    """score(i, j) − m_h · |i − j|, with a slope m_h per head.

    Attributes:
        bias_max: the smallest slope is 2^(−bias_max) (MPT; the paper's is 8).
    """

    bias_max: float = 8.0

    def __post_init__(self) -> None:
        above("Alibi.bias_max", self.bias_max, 0)

    @property
    def scores(self) -> Scores:
        return "distance"

    def build(self, dims: Dims) -> PositionModule:
        return AlibiModule(dims.n_heads, self.bias_max)


class AlibiModule(PositionModule):
    def __init__(self, n_heads: int, bias_max: float) -> None:
        super().__init__()
        self.slopes = slopes(n_heads, bias_max)  # [H], no buffer: `.to(bfloat16)` must not round them

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        slope = self.slopes.to(key.position.device, torch.promote_types(dtype, torch.float32))

        def of(_: tuple[Tensor, ...], distance: Tensor) -> Tensor:
            return (-slope * distance.abs()[..., None]).to(dtype)

        geometry = Geometry()
        geometry.bias = DistanceBias(Distances(query, key), of)
        return geometry


def slopes(n_heads: int, bias_max: float = 8.0) -> Tensor:
    """[H] float64. For H a power of two: 2^(−bias_max·h/H), h = 1 … H. Otherwise those of the power of two P below,
    then every other one of 2P's, so that 6 heads have .25 .0625 .015625 .00390625 .5 .125 (the authors' code, §3)."""

    def powers(heads: int) -> list[float]:
        return [2.0 ** (-bias_max * h / heads) for h in range(1, heads + 1)]

    below = 2 ** math.floor(math.log2(n_heads))
    return torch.tensor((powers(below) + powers(2 * below)[0::2])[:n_heads], dtype=torch.float64, device="cpu")
