"""Activations that a backward pass computes again, cheaply, instead of keeping them: what norms and activations give.

Axes: N tokens, D model, F feed-forward.

Of a GPT-2 layer's 16·D numbers a token, the result of the activation (4·D) and those of two norms (2·D) follow from
others that are kept anyway, by operations that cost next to nothing beside matrix products. This is Korthikanti et al.
2022 ("Reducing Activation Recomputation in Large Transformer Models"), §5, on other parts: on a CPU attention keeps no
scores. What is computed again is computed by the same operations, so gradients are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from transpect.core.attention import Attention, Pass
from transpect.core.blocks import Branch, Step
from transpect.core.feedforward import GluModule, MlpModule
from transpect.core.kernels import Sdpa
from transpect.core.kernels.autocast import as_it_is, lowered
from transpect.core.model import Transformer
from transpect.train.accumulating import bias_gradient, exchange
from transpect.train.attending import attending
from transpect.train.pointwise import Pointwise, gated, pointwise
from transpect.train.products import own_gradient, product_into, product_onto

AT_ONCE = 2**21
"""How many numbers of the widest matrix are worked on at a time, so that they stay in the last cache of a CPU."""


def recompute_activations(model: Transformer) -> Transformer:
    """Let a model on a CPU keep less for its backward pass; others are left as they are.

    Modules are exchanged within ``model`` for others over the same weights, with the same names and results.
    """
    if model.device.type == "cpu":
        for step in model.modules():
            if isinstance(step, Step):
                for name, branch in step.branches.items():
                    assert isinstance(branch, Branch)
                    step.branches[name] = RecomputingBranch(branch)
        exchange(model)
    return model


class RecomputingBranch(nn.Module):
    """dropout(after_branch(body(before(x)))), where what ``before`` gives is not kept for the backward pass."""

    def __init__(self, branch: Branch) -> None:
        super().__init__()
        self.before, self.body = branch.before, _exchanged(branch.body)
        self.after_branch, self.dropout = branch.after_branch, branch.dropout

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        normed = self.before(x)
        again = Again(self.before, x, normed)
        with saved_tensors_hooks(again.pack, again.unpack):
            mixed = self.body(normed, run)
        again.result = None
        out: Tensor = self.dropout(self.after_branch(mixed))
        return out


class Again:
    """Hooks of autograd that keep the argument of a function in place of its result.

    Args:
        function: that can be called again.
        x: its argument.
        result: what it gave; to be taken away (None) when nothing reads it any more in the forward pass.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], x: Tensor, result: Tensor) -> None:
        self.function, self.x, self.result = function, x, None if result is x else result
        self.users = 0

    def pack(self, kept: Tensor) -> Tensor | torch.Size:
        """While the result lives, what lies in its place, in as many numbers, is the result."""
        if self.result is None or not _is_all_of(kept, self.result):
            return kept
        self.users += 1
        return kept.shape

    def unpack(self, kept: Tensor | torch.Size) -> Tensor:
        """It is computed for the first of its users, and kept until the last."""
        if isinstance(kept, Tensor):
            return kept
        if self.result is None:
            with torch.no_grad():
                self.result = self.function(self.x)
        result = self.result.view(kept)
        self.users -= 1
        if not self.users:
            self.result = None
        return result


def _is_all_of(kept: Tensor, result: Tensor) -> bool:
    same = kept.data_ptr() == result.data_ptr() and kept.numel() == result.numel() and kept.dtype == result.dtype
    return same and kept.is_contiguous() and result.is_contiguous()


class RecomputingFeedForward(nn.Module):
    """down(f(way(x), …)) over the weights of a feed-forward, where only ``way(x)`` are kept."""

    def __init__(self, ways: dict[str, nn.Module], down: nn.Linear, function: Pointwise) -> None:
        super().__init__()
        self.ways = list(ways)
        for name, module in ways.items():
            self.add_module(name, module)
        self.down, self.function = down, function

    def forward(self, x: Tensor, *_: object) -> Tensor:
        inputs = [self.get_submodule(name)(x) for name in self.ways]  # [B, T, D] -> [B, T, F]
        apply: Callable[..., Tensor] = _LinearOf.apply
        return apply(self.function, self.down.weight, self.down.bias, *inputs)


def _exchanged(body: nn.Module) -> nn.Module:
    if isinstance(body, Attention) and type(body.kernel) is Sdpa:
        body.kernel = attending(body.kernel)
    if not isinstance(getattr(body, "down", None), nn.Linear):  # a packed weight, or one with an adapter beside it
        return body
    if isinstance(body, MlpModule) and not body.dropout.p:
        return RecomputingFeedForward({"up": body.up}, body.down, pointwise(body.act))
    if isinstance(body, GluModule) and not body.dropout.p:
        return RecomputingFeedForward({"gate": body.gate, "up": body.up}, body.down, gated(body.act))
    return body


class _LinearOf(torch.autograd.Function):
    """f(u, …) · weightᵀ + bias, some tokens at a time, forward and backward."""

    @staticmethod
    def forward(ctx: Any, function: Pointwise, weight: Tensor, bias: Tensor | None, *inputs: Tensor) -> Tensor:
        ctx.function, ctx.weight, ctx.bias = function, weight, bias
        ctx.save_for_backward(weight, *inputs)
        rows, (matrix,) = _rows(inputs), lowered(weight)
        out = matrix.new_empty(len(rows[0]), len(matrix))
        with as_it_is(weight.device):
            for some in _chunks(rows[0]):
                product_into(out[some], function.value([u[some] for u in rows]).to(out.dtype), matrix.T)
            if bias is not None:
                out += bias
        return out.view(*inputs[0].shape[:-1], len(matrix))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Any, ...]:
        weight, *inputs = ctx.saved_tensors
        rows, slope = _rows(inputs), by.flatten(0, -2)
        matrix = weight.to(slope.dtype)
        of_inputs = [torch.empty_like(u) for u in rows]
        there = own_gradient(ctx.weight)
        fresh = torch.zeros_like(weight) if ctx.needs_input_grad[1] and there is None else None
        of_weight = there if fresh is None else fresh
        of_bias = bias_gradient(ctx.bias, slope) if ctx.needs_input_grad[2] else None
        for some in _chunks(rows[0]):
            value = ctx.function.pull([u[some] for u in rows], slope[some] @ matrix, [own[some] for own in of_inputs])
            if ctx.needs_input_grad[1] and of_weight is not None:
                product_onto(of_weight, slope[some].T, value.to(slope.dtype))
        return (None, fresh, of_bias, *(own.view_as(u) for own, u in zip(of_inputs, inputs, strict=True)))


def _rows(inputs: Sequence[Tensor]) -> list[Tensor]:
    """[B, T, F] -> [N, F]."""
    return [u.flatten(0, -2) for u in inputs]


def _chunks(rows: Tensor) -> list[slice]:
    size = max(1, AT_ONCE // rows.shape[-1])
    return [slice(start, start + size) for start in range(0, len(rows), size)]
