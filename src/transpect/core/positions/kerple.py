"""Logarithmic biases with learned slopes (KERPLE, Chi et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.core.bias import DistanceBias, Distances
from transpect.core.initialization import Drawn
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, Scores
from transpect.core.tags import Tags

LEAST = 0.01
"""Of r1 and r2 where a training starts."""


@dataclass(frozen=True)
class Kerple(Position, kind="kerple"):
    """score(i, j) − r1_h · log(1 + r2_h · |i − j|), with r1, r2 > 0 learned for each head and shared by all layers of a
    stack (§4, the logarithmic variant)."""

    @property
    def scores(self) -> Scores:
        return "distance"

    def build(self, dims: Dims) -> PositionModule:
        return KerpleModule(dims.n_heads)


class KerpleModule(PositionModule, Drawn):
    """Attributes: log_r1, log_r2: [H]; what is learned is the logarithm, so that r1 and r2 stay positive."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.log_r1 = nn.Parameter(torch.empty(n_heads))
        self.log_r2 = nn.Parameter(torch.empty(n_heads))

    def draw(self, generator: torch.Generator) -> None:
        """r1 ~ U(0, 2), r2 ~ U(0, 1), as the authors' code does; the paper does not say."""
        for parameter, most in ((self.log_r1, 2.0), (self.log_r2, 1.0)):
            drawn = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype, device="cpu")
            parameter.copy_((drawn * most).clamp(min=LEAST).log())

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        geometry = Geometry()
        geometry.bias = DistanceBias(Distances(query, key), kerple, (self.log_r1, self.log_r2))
        return geometry


def kerple(logs: tuple[Tensor, ...], distance: Tensor) -> Tensor:
    """log r1 and log r2 [H], and distances [...] -> the biases [..., H], in the dtype of the former."""
    dtype = logs[0].dtype
    r1, r2 = (log.to(torch.promote_types(dtype, torch.float32)).exp() for log in logs)
    return (-r1 * torch.log1p(r2 * distance.abs()[..., None])).to(dtype)
