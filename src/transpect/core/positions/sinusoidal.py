"""Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, §3.5)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.core.context import Tags
from transpect.core.positions.base import Dims, Position, PositionModule, row, sinusoid


@dataclass(frozen=True)
class Sinusoidal(Position, kind="sinusoidal"):
    """PE(pos, 2i) = sin(pos / base^(2i/D)), PE(pos, 2i+1) = cos of the same. For odd D the last cosine is left out.

    Computed when needed, for any length; nothing of it is in a checkpoint.
    """

    base: float = 10000.0

    def build(self, dims: Dims) -> PositionModule:
        return SinusoidalModule(self.base)


class SinusoidalModule(PositionModule):
    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = base

    def embed(self, x: Tensor, tags: Tags) -> Tensor:
        return x + encoding(row(tags), x.shape[-1], self.base).to(x.dtype)


def encoding(position: Tensor, d_model: int, base: float = 10000.0) -> Tensor:
    """The table's rows for ``position`` [...]: [..., D] in float64."""
    sin, cos = sinusoid(position, d_model, base)
    return torch.stack([sin, cos], -1).flatten(-2)[..., :d_model]
