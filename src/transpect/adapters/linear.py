"""Linear layers with a change of low rank beside their weight.

Axes: N out, D in, R rank. W [N, D] stays, A [R, D] and B [N, R] are trained, s is a number.
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.base.errors import ConfigError


class Factor(nn.Module):
    """x Mᵀ."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(matrix)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)


class LowRankLinear(nn.Module):
    """A linear layer and A, B beside it. There is no ``weight``: what reads one must be told of adapters.

    Args:
        base: the layer; a packed one may stay packed.
        rank: R.
        scale: s.
        dropout: on what A reads.
    """

    def __init__(self, base: nn.Module, rank: int, scale: float, dropout: float) -> None:
        super().__init__()
        layer: Any = base
        self.base, self.scale = base, scale
        self.in_features, self.out_features = int(layer.in_features), int(layer.out_features)
        like = next(tensor for held in (base.parameters(), base.buffers()) for tensor in held)
        dtype = like.dtype if like.dtype.is_floating_point else torch.float32
        self.dropout = nn.Dropout(dropout)
        self.a = Factor(torch.empty(rank, self.in_features, device=like.device, dtype=dtype))
        self.b = Factor(torch.empty(self.out_features, rank, device=like.device, dtype=dtype))

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> None:
        """A from U(±1/√D), B = 0: the layer gives what it gave."""
        bound = 1.0 / math.sqrt(self.in_features)
        drawn = torch.empty(self.a.weight.shape, dtype=self.a.weight.dtype)
        self.a.weight.copy_(drawn.uniform_(-bound, bound, generator=generator))
        self.b.weight.zero_()

    def base_weight(self) -> Tensor:
        """W."""
        layer: Any = self.base
        weight: Tensor = layer.weight if isinstance(layer, nn.Linear) else layer.dequantised(self.a.weight.dtype)
        return weight

    def change(self) -> Tensor:
        """s·B A [N, D]."""
        return self.scale * (self.b.weight @ self.a.weight)

    def merged(self) -> Tensor:
        """The weight [N, D] of a linear layer that computes the same.

        Raises:
            ConfigError: the layer's own weight is packed.
        """
        raise AssertionError("abstract")

    def _full(self) -> Tensor:
        """W, where it may be merged with."""
        if not isinstance(self.base, nn.Linear):
            raise ConfigError(
                "an adapter can't be merged into a weight that is packed in a few bits",
                value=type(self.base).__name__,
                remedy="Load the model in full (quant=None), or leave the adapter beside it.",
            )
        return self.base.weight


@final
class LoraLinear(LowRankLinear):
    """y = W x + b + s · B A drop(x)."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.scale * self.b(self.a(self.dropout(x)))
        return out

    @torch.no_grad()
    def merged(self) -> Tensor:
        weight = self._full()
        wide = self.scale * (self.b.weight.double() @ self.a.weight.double())
        return (weight.double() + wide).to(weight.dtype)


@final
class DoraLinear(LowRankLinear):
    """y = m ⊙ (W x + s · B A drop(x)) / ‖W + s·B A‖ + b; norms are of rows, and no gradient goes through them.

    Attributes:
        magnitude: m [N], which begins as the norms of W's rows.
    """

    def __init__(self, base: nn.Module, rank: int, scale: float, dropout: float) -> None:
        super().__init__(base, rank, scale, dropout)
        self.magnitude = nn.Parameter(self.a.weight.new_empty(self.out_features))

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> None:
        super().draw(generator)
        self.magnitude.copy_(self.base_weight().norm(dim=1))

    def forward(self, x: Tensor) -> Tensor:
        layer: Any = self.base
        weight = self.base_weight().detach()
        with torch.no_grad():
            norm = (weight + self.change()).norm(dim=1)  # [N]
        turned = functional.linear(x, weight.to(x.dtype)) + self.scale * self.b(self.a(self.dropout(x)))
        out: Tensor = turned * (self.magnitude / norm).to(turned.dtype)
        return out if layer.bias is None else out.add(layer.bias)

    @torch.no_grad()
    def merged(self) -> Tensor:
        weight = self._full()
        wide = weight.double() + self.scale * (self.b.weight.double() @ self.a.weight.double())
        share: Tensor = self.magnitude.double() / wide.norm(dim=1)
        return (share[:, None] * wide).to(weight.dtype)
