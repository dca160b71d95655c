"""Transformer-XL's relative positions (Dai et al. 2019, §3.3); its memories live in `Context`.

score(i, j) = (q_i + u)·k_j + (q_i + v)·W_R r_{i−j}, with r the sinusoid of the distance and u, v, W_R a layer's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.base.checks import above
from transpect.core.bias import Bias, Distances, QueryBias
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, Relation, Scores, sinusoid
from transpect.core.tags import Tags


@dataclass(frozen=True)
class TransformerXL(Position, kind="transformer_xl"):
    """Relative sinusoids with content and position biases."""

    base: float = 10000.0

    def __post_init__(self) -> None:
        above("TransformerXL.base", self.base, 1)

    @property
    def scores(self) -> Scores:
        return "query"

    def build(self, dims: Dims) -> PositionModule:
        return TransformerXLModule(dims, self.base)


class TransformerXLModule(PositionModule):
    def __init__(self, dims: Dims, base: float) -> None:
        super().__init__()
        self.dims, self.base = dims, base

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        distances = Distances(query, key)
        low, high = distances.reach
        occurring = torch.arange(low, high + 1, device=key.position.device)
        # sines first, then cosines, as the authors' code has them
        sinusoids = torch.cat(sinusoid(occurring, self.dims.d_model, self.base), -1)[:, : self.dims.d_model]
        return SinusoidGeometry(distances, sinusoids.to(dtype), low)

    def relation(self) -> Relation:
        return TransformerXLRelation(self.dims)


class SinusoidGeometry(Geometry):
    """``sinusoids`` [N, D] of the N distances from ``low`` on."""

    def __init__(self, distances: Distances, sinusoids: Tensor, low: int) -> None:
        self.distances, self.sinusoids, self.low = distances, sinusoids, low


class TransformerXLRelation(Relation):
    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.heads, self.head_dim = dims.n_heads, dims.head_dim
        self.project = nn.Linear(dims.d_model, dims.n_heads * dims.head_dim, bias=False)
        self.u = nn.Parameter(torch.zeros(dims.n_heads, dims.head_dim))
        self.v = nn.Parameter(torch.zeros(dims.n_heads, dims.head_dim))

    def forward(self, query: Tensor, geometry: Geometry, scale: float) -> tuple[Tensor, Bias | None]:
        assert isinstance(geometry, SinusoidGeometry)
        relative = self.project(geometry.sinusoids).unflatten(-1, (self.heads, self.head_dim))  # [N, H, E]
        bias = QueryBias(geometry.distances, query + self.v[:, None], relative, geometry.low, scale)
        return query + self.u[:, None], bias
