"""Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, §3.5)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.checks import above
from transpect.core.context import Tags
from transpect.core.positions.base import Dims, Position, PositionModule, row, sinusoid


@dataclass(frozen=True)
class Sinusoidal(Position, kind="sinusoidal"):
    """PE(pos, 2i) = sin(pos / base^(2i/D)), PE(pos, 2i+1) = cos of the same. For odd D the last cosine is left out.

    Computed when needed, for any length; nothing of it is in a checkpoint.
    """

    base: float = 10000.0

    def __post_init__(self) -> None:
        above("Sinusoidal.base", self.base, 1)

    def build(self, dims: Dims) -> PositionModule:
        return SinusoidalModule(self.base)


class SinusoidalModule(PositionModule):
    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = base

    def embed(self, x: Tensor, tags: Tags) -> Tensor:
        position, width = row(tags), x.shape[-1]
        if tags.start is not None or not position.numel():
            return x + encoding(position, width, self.base).to(x.dtype)
        # many rows share few positions: each is computed once
        distinct = torch.arange(int(position.max()) + 1, device=position.device)
        return x + encoding(distinct, width, self.base).to(x.dtype)[position]


def encoding(position: Tensor, d_model: int, base: float = 10000.0) -> Tensor:
    """The table's rows for ``position`` [...]: [..., D] in float64."""
    sin, cos = sinusoid(position, d_model, base)
    return torch.stack([sin, cos], -1).flatten(-2)[..., :d_model]
