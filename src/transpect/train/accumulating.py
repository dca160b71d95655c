"""Linear layers and tables of training on a CPU, whose gradients are added where those of earlier pieces are.

Axes: N tokens, V vocabulary, D width of the input, F of the output.

Autograd makes a gradient of each weight for each piece of a batch and adds it to the one before, which is reading or
writing all weights four times; a product that begins with what is there does it twice, and of a table only the rows
that were looked up are touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transpect.core.kernels.autocast import lowered
from transpect.train.products import own_gradient, product_onto


class Linear(nn.Linear):
    """`torch.nn.Linear` over the parameters of another."""

    @classmethod
    def over(cls, linear: nn.Linear) -> Linear:
        """The same map of the same parameters."""
        with torch.device("meta"):
            own = cls(linear.in_features, linear.out_features, bias=False)
        own.weight, own.bias = linear.weight, linear.bias
        return own.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        plain = lowered(input)[0].dtype == input.dtype == self.weight.dtype == torch.float32
        if not (plain and torch.is_grad_enabled() and self.weight.requires_grad):
            return super().forward(input)
        apply: Callable[..., Tensor] = _Linear.apply
        return apply(input, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    """x·weightᵀ + bias: [..., D], [F, D], [F] -> [..., F]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.bias = weight, bias
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:
        (x,), rows = ctx.saved_tensors, by.flatten(0, -2)
        of_x = (rows @ ctx.weight).view_as(x) if ctx.needs_input_grad[0] else None
        of_weight = weight_gradient(ctx.weight, rows, x.flatten(0, -2)) if ctx.needs_input_grad[1] else None
        of_bias = bias_gradient(ctx.bias, rows) if ctx.needs_input_grad[2] else None
        return of_x, of_weight, of_bias


class Table(nn.Embedding):
    """`torch.nn.Embedding` over the parameter of another."""

    @classmethod
    def over(cls, table: nn.Embedding) -> Table:
        """The same rows."""
        with torch.device("meta"):
            own = cls(table.num_embeddings, table.embedding_dim)
        own.weight = table.weight
        return own.train(table.training)

    def forward(self, input: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and self.weight.requires_grad):
            return super().forward(input)
        apply: Callable[..., Tensor] = _LookUp.apply
        return apply(input, self.weight)


class _LookUp(torch.autograd.Function):
    """weight[ids]: [...], [V, D] -> [..., D]."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.weight = weight
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:
        (ids,), own = ctx.saved_tensors, own_gradient(ctx.weight)
        gradient = torch.zeros_like(ctx.weight) if own is None else own
        gradient.index_add_(0, ids.flatten(), by.flatten(0, -2).to(gradient.dtype))
        return None, gradient if own is None else None


def exchange(module: nn.Module) -> None:
    """Exchange what ``module`` holds of torch's own layers for these."""
    for inner in [*module.modules()]:
        for name, layer in inner.named_children():
            if type(layer) is nn.Linear:
                setattr(inner, name, Linear.over(layer))
            elif type(layer) is nn.Embedding and layer.padding_idx is None and layer.max_norm is None:
                setattr(inner, name, Table.over(layer))


def weight_gradient(weight: Tensor, by: Tensor, x: Tensor) -> Tensor | None:
    """byᵀ·x [F, D], of [N, F] and [N, D]; None where it was added to the weight's own."""
    own = own_gradient(weight)
    if own is None:
        return by.T @ x
    product_onto(own, by.T, x)
    return None


def bias_gradient(bias: Tensor, by: Tensor) -> Tensor | None:
    """Σ over rows of [N, F]; None where it was added to the bias's own."""
    from transpect.runtime.borrowed import can_borrow, run_on_torch, serves

    own = own_gradient(bias)
    gradient = torch.zeros_like(bias) if own is None else own
    if can_borrow() and serves(by, gradient):
        from transpect.runtime.kernels.columns import add_columns

        run_on_torch(add_columns, by, gradient)
    else:
        gradient += by.sum(0, dtype=bias.dtype)
    return gradient if own is None else None
