"""Functions of single numbers for chunks that lie in the cache: their value, and value and slopes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt

import torch
from torch import Tensor

from transpect.core.feedforward import ACTIVATIONS


class Pointwise:
    """a = f(u, …)."""

    def value(self, inputs: Sequence[Tensor]) -> Tensor:
        """f(u, …)."""
        raise AssertionError("abstract")

    def pull(self, inputs: Sequence[Tensor], by: Tensor, out: Sequence[Tensor]) -> Tensor:
        """f(u, …); ``by`` · ∂f/∂u is written to ``out``, for each u."""
        raise AssertionError("abstract")


class ByAutograd(Pointwise):
    """Whatever torch can differentiate."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function

    def value(self, inputs: Sequence[Tensor]) -> Tensor:
        return self.function(*inputs)

    def pull(self, inputs: Sequence[Tensor], by: Tensor, out: Sequence[Tensor]) -> Tensor:
        leaves = [u.detach().requires_grad_() for u in inputs]
        with torch.enable_grad():
            value = self.function(*leaves)
        for own, slope in zip(out, torch.autograd.grad(value, leaves, by), strict=True):
            own.copy_(slope)
        return value.detach()


class TanhGelu(Pointwise):
    """u/2 · (1 + tanh(√(2/π)·(u + 0.044715·u³))) = u·σ(2z), z being what tanh is of (Hendrycks & Gimpel 2016, §2).

    torch's tanh takes three times as long as its σ, and it computes one for the value and one for the slope.
    """

    LINEAR, CUBIC = 2 * sqrt(2 / pi), 2 * sqrt(2 / pi) * 0.044715

    def value(self, inputs: Sequence[Tensor]) -> Tensor:
        (u,) = inputs
        x = _wide(u)
        return self._gate(x * x, x).mul_(x).to(u.dtype)

    def pull(self, inputs: Sequence[Tensor], by: Tensor, out: Sequence[Tensor]) -> Tensor:
        """∂a/∂u = σ + a·(1 − σ)·∂(2z)/∂u."""
        (u,), (own,) = inputs, out
        x = _wide(u)
        square = x * x
        steep = (square * (3 * self.CUBIC)).add_(self.LINEAR)
        gate = self._gate(square, x)
        value = gate * x
        slope = steep.mul_(value).addcmul_(steep, gate, value=-1.0).add_(gate)
        torch.mul(slope, by, out=slope)
        own.copy_(slope)
        return value.to(u.dtype)

    def _gate(self, square: Tensor, x: Tensor) -> Tensor:
        """σ(2z), in place of x²."""
        return square.mul_(self.CUBIC).add_(self.LINEAR).mul_(x).sigmoid_()


def pointwise(act: Callable[[Tensor], Tensor]) -> Pointwise:
    """An activation of `ACTIVATIONS`."""
    return TanhGelu() if act is ACTIVATIONS["gelu_tanh"] else ByAutograd(act)


def gated(act: Callable[[Tensor], Tensor]) -> Pointwise:
    """act(gate) ⊙ up, of (gate, up)."""
    return ByAutograd(lambda gate, up: act(gate) * up)


def _wide(u: Tensor) -> Tensor:
    return u.to(torch.promote_types(u.dtype, torch.float32))
