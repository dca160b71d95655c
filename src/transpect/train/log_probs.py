"""Log-probabilities of labels, of which the logits never exist all at once.

Axes: N labelled tokens, W width of a head's features, V vocabulary.

Where a loss is no sum over tokens (a preference weighs whole answers against each other), the slope of a token's loss
is known only when all are, so nothing can be finished in the forward pass, as `summed_cross_entropy` does. Instead the
logits are made again, some tokens at a time: ∂ log p(label) / ∂ logits = target − softmax(logits).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transpect.core.kernels.autocast import as_it_is, lowered
from transpect.train.cross_entropy import Readout
from transpect.train.products import product_into, product_onto


def label_log_probs(features: Tensor, labels: Tensor, readout: Readout, *, at_once: int = 1024) -> Tensor:
    """ln p(label) of each token, [N], at least in float32; it can be differentiated once.

    Args:
        features: [N, W].
        labels: [N], each a class.
        readout: of the head.
        at_once: of how many tokens there are logits at a time.
    """
    apply: Callable[..., Tensor] = _LogProbs.apply
    return apply(features, readout.weight, readout.bias, labels, readout.cap, at_once)


class _LogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        cap: float | None,
        at_once: int,
    ) -> Tensor:
        ctx.save_for_backward(features, weight, bias, labels)
        ctx.cap, ctx.at_once = cap, at_once
        rows, matrix = lowered(features, weight)
        ctx.dtype, readout = rows.dtype, Readout(matrix, bias, cap)
        out = [rows.new_empty(0, dtype=torch.promote_types(rows.dtype, torch.float32))]
        with as_it_is(rows.device):
            for some, answers in zip(torch.split(rows, at_once), torch.split(labels, at_once), strict=True):
                logits = readout.logits(some)
                out.append(logits.gather(1, answers[:, None]).squeeze(1) - logits.logsumexp(-1))
        return torch.cat(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, bias, labels = ctx.saved_tensors
        given = zip((features, weight, bias), ctx.needs_input_grad[:3], strict=True)
        grads = [torch.zeros_like(tensor) if tensor is not None and needed else None for tensor, needed in given]
        of_features, of_weight, of_bias = grads
        rows, matrix = features.to(ctx.dtype), weight.to(ctx.dtype)
        readout = Readout(matrix, bias, ctx.cap)
        for start in range(0, len(rows), ctx.at_once):
            some = slice(start, start + ctx.at_once)
            logits = readout.logits(rows[some])
            slope = logits.softmax(-1).neg_()
            slope.scatter_add_(1, labels[some, None], torch.ones_like(slope[:, :1]))
            slope *= by[some, None]
            if ctx.cap is not None:
                slope *= 1.0 - (logits / ctx.cap).square()
            if of_bias is not None:
                of_bias += slope.sum(0)
            low = slope.to(rows.dtype)
            if of_features is not None:
                product_into(of_features[some], low, matrix)
            if of_weight is not None:
                product_onto(of_weight, low.T, rows[some])
        return (*grads, None, None, None)
