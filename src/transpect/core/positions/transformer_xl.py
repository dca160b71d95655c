"""Transformer-XL's relative positions (Dai et al. 2019, §3.3); its memories live in `Context`.

score(i, j) = (q_i + u)·k_j + (q_i + v)·W_R r_{i−j}, with r the sinusoid of the distance and u, v, W_R a layer's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.base.checks import above
from transpect.core.context import Tags
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, Relation, distances, sinusoid


@dataclass(frozen=True)
class TransformerXL(Position, kind="transformer_xl"):
    """Relative sinusoids with content and position biases."""

    base: float = 10000.0

    def __post_init__(self) -> None:
        above("TransformerXL.base", self.base, 1)

    def build(self, dims: Dims) -> PositionModule:
        return TransformerXLModule(dims, self.base)


class TransformerXLModule(PositionModule):
    def __init__(self, dims: Dims, base: float) -> None:
        super().__init__()
        self.dims, self.base = dims, base

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        distance = distances(query, key)
        low, high = span(query, key, distance)
        return DistanceGeometry(distance, low, high, self.dims.d_model, self.base, dtype)

    def relation(self) -> Relation:
        return TransformerXLRelation(self.dims)


class DistanceGeometry(Geometry):
    """``sinusoids`` [N, D] of the N distances from ``low`` to ``high``; ``index`` [B|1, T, S] says which is whose."""

    def __init__(self, distance: Tensor, low: int, high: int, d_model: int, base: float, dtype: torch.dtype) -> None:
        occurring = torch.arange(low, high + 1, device=distance.device)
        # sines first, then cosines, as the authors' code has them
        self.sinusoids = torch.cat(sinusoid(occurring, d_model, base), -1)[:, :d_model].to(dtype)
        self.index = distance - low


class TransformerXLRelation(Relation):
    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.heads, self.head_dim = dims.n_heads, dims.head_dim
        self.project = nn.Linear(dims.d_model, dims.n_heads * dims.head_dim, bias=False)
        self.u = nn.Parameter(torch.zeros(dims.n_heads, dims.head_dim))
        self.v = nn.Parameter(torch.zeros(dims.n_heads, dims.head_dim))

    def forward(self, query: Tensor, geometry: Geometry, scale: float) -> tuple[Tensor, Tensor | None]:
        assert isinstance(geometry, DistanceGeometry)
        batch, heads, queries, _ = query.shape
        relative = self.project(geometry.sinusoids).unflatten(-1, (self.heads, self.head_dim))  # [N, H, E]
        scores = torch.einsum("bhte,nhe->bhtn", query + self.v[:, None], relative)
        index = geometry.index[:, None].expand(batch, heads, queries, -1)  # [B, H, T, S]
        return query + self.u[:, None], scores.gather(-1, index) * scale


def span(query: Tags, key: Tags, distance: Tensor) -> tuple[int, int]:
    """The smallest and the largest distance; known without waiting for the device where rows have no padding."""
    if query.start is not None and key.start is not None:
        last_query, last_key = query.start + query.shape[1] - 1, key.start + key.shape[1] - 1
        return query.start - last_key, last_query - key.start
    return (int(distance.min()), int(distance.max())) if distance.numel() else (0, 0)
