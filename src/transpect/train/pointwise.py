"""Functions of single numbers for chunks that lie in the cache: their value, and value and slopes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transpect.core.feedforward import ACTIVATIONS

if TYPE_CHECKING:
    from transpect.runtime.machine import Kernel


class Pointwise:
    """a = f(u, …)."""

    def value(self, inputs: Sequence[Tensor]) -> Tensor:
        """f(u, …)."""
        raise AssertionError("abstract")

    def pull(self, inputs: Sequence[Tensor], by: Tensor, out: Sequence[Tensor]) -> Tensor:
        """f(u, …); ``by`` · ∂f/∂u is written to ``out``, for each u. ``by`` is used up."""
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


class InOnePass(Pointwise):
    """Loops of our own on torch's threads, where numbers are float32 (`transpect.runtime.kernels.slopes`).

    Args:
        value, pull: kernels; of the inputs and a place for the result, and of the inputs, ``by`` and places for slopes.
        other: for numbers of another dtype.
    """

    def __init__(self, value: Kernel, pull: Kernel, other: Pointwise) -> None:
        self._value, self._pull, self._other = value, pull, other

    def value(self, inputs: Sequence[Tensor]) -> Tensor:
        from transpect.runtime.borrowed import run_on_torch, serves

        if not serves(*inputs):
            return self._other.value(inputs)
        out = torch.empty_like(inputs[0])
        run_on_torch(self._value, *_flat(*inputs, out))
        return out

    def pull(self, inputs: Sequence[Tensor], by: Tensor, out: Sequence[Tensor]) -> Tensor:
        from transpect.runtime.borrowed import run_on_torch, serves

        if not serves(*inputs, by, *out):
            return self._other.pull(inputs, by, out)
        run_on_torch(self._pull, *_flat(*inputs, by, *out))
        return by


def pointwise(act: Callable[[Tensor], Tensor]) -> Pointwise:
    """An activation of `ACTIVATIONS`."""
    if act is not ACTIVATIONS["gelu_tanh"]:
        return ByAutograd(act)
    from transpect.runtime.borrowed import can_borrow
    from transpect.runtime.kernels.slopes import gelu, pull_gelu

    return InOnePass(gelu, pull_gelu, TanhGelu()) if can_borrow() else TanhGelu()


def gated(act: Callable[[Tensor], Tensor]) -> Pointwise:
    """act(gate) ⊙ up, of (gate, up)."""
    plain = ByAutograd(lambda gate, up: act(gate) * up)
    if act is not ACTIVATIONS["silu"]:
        return plain
    from transpect.runtime.borrowed import can_borrow
    from transpect.runtime.kernels.slopes import pull_swiglu, swiglu

    return InOnePass(swiglu, pull_swiglu, plain) if can_borrow() else plain


def _flat(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().view(-1) for tensor in tensors]


def _wide(u: Tensor) -> Tensor:
    return u.to(torch.promote_types(u.dtype, torch.float32))
