"""Normalisations, and where in a step they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.base.checks import above
from transpect.base.codec import Variant


class Norm(Variant):
    """A normalisation of the last axis, with its options."""

    def build(self, dim: int) -> nn.Module:
        """The module for vectors of ``dim`` numbers."""
        raise AssertionError("abstract")


@dataclass(frozen=True)
class LayerNorm(Norm, kind="layernorm"):
    """(x − mean) / √(var + eps) · weight + bias (Ba et al. 2016)."""

    eps: float = 1e-5
    bias: bool = True

    def __post_init__(self) -> None:
        above("eps", self.eps, 0)

    def build(self, dim: int) -> nn.Module:
        return nn.LayerNorm(dim, eps=self.eps, bias=self.bias)


@dataclass(frozen=True)
class PlainLayerNorm(Norm, kind="plain_layernorm"):
    """(x − mean) / √(var + eps), without weight and bias (OLMo §2.1)."""

    eps: float = 1e-5

    def __post_init__(self) -> None:
        above("eps", self.eps, 0)

    def build(self, dim: int) -> nn.Module:
        return nn.LayerNorm(dim, eps=self.eps, elementwise_affine=False)


@dataclass(frozen=True)
class RMSNorm(Norm, kind="rmsnorm"):
    """x / √(mean(x²) + eps) · weight (Zhang & Sennrich 2019).

    Attributes:
        unit_offset: the stored weight is an offset from 1, as in Gemma: · (1 + weight).
    """

    eps: float = 1e-6
    unit_offset: bool = False

    def __post_init__(self) -> None:
        above("eps", self.eps, 0)

    def build(self, dim: int) -> nn.Module:
        return OffsetRMSNorm(dim, self.eps) if self.unit_offset else nn.RMSNorm(dim, eps=self.eps)


class OffsetRMSNorm(nn.Module):
    """RMSNorm whose weight is kept as its difference from 1."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        # 1 + w is rounded to three digits in bfloat16
        wide = torch.promote_types(x.dtype, torch.float32)
        return functional.rms_norm(x.to(wide), self.weight.shape, 1.0 + self.weight.to(wide), self.eps).to(x.dtype)


class Placement(Variant):
    """Which of a step's slots hold a norm, and whether a stack ends with one.

    ``x ← enter(x)``, then ``x ← after(x + Σ after_branch(branch(before(x))))``
    """

    enter: ClassVar[bool] = False
    before: ClassVar[bool] = False
    after_branch: ClassVar[bool] = False
    after: ClassVar[bool] = False
    final: ClassVar[bool] = False


@dataclass(frozen=True)
class Post(Placement, kind="post"):
    """The original: LayerNorm(x + branch(x)); needs no final norm (Vaswani et al. 2017, §3.1)."""

    after: ClassVar[bool] = True


@dataclass(frozen=True)
class Pre(Placement, kind="pre"):
    """x + branch(norm(x)), and a norm at the end of the stack (GPT-2 §2.3; Xiong et al. 2020)."""

    before: ClassVar[bool] = True
    final: ClassVar[bool] = True


@dataclass(frozen=True)
class Enter(Placement, kind="enter"):
    """n + branch(n) with n = norm(x), and a final norm: what is added to is normed as well (an option of BLOOM and of
    Megatron-LM before it)."""

    enter: ClassVar[bool] = True
    final: ClassVar[bool] = True


@dataclass(frozen=True)
class Sandwich(Placement, kind="sandwich"):
    """x + norm(branch(norm(x))), and a final norm (CogView §2.4; Gemma 2)."""

    before: ClassVar[bool] = True
    after_branch: ClassVar[bool] = True
    final: ClassVar[bool] = True


@dataclass(frozen=True)
class BranchEnd(Placement, kind="branch_end"):
    """x + norm(branch(x)), and a final norm (OLMo 2 §3.1; Swin v2)."""

    after_branch: ClassVar[bool] = True
    final: ClassVar[bool] = True
