"""Cross-entropy of many tokens over a large vocabulary, whose logits never exist all at once.

Axes: N labelled tokens, W width of a head's features, V vocabulary.

The gradient of a token's loss by its logits is softmax(logits) − target, so it is known as soon as they are. Some
tokens at a time are therefore finished while their logits lie in the cache: loss, slope, and from that what the
features and the head's weights are given. Autograd keeps only those, N·W + V·W numbers instead of N·V.

Source: Hsu et al. 2024 ("Liger Kernel"), §3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transpect.core.heads import SoftCap, TokenHead
from transpect.core.kernels.autocast import as_it_is, lowered
from transpect.core.model import Transformer
from transpect.train.products import added, product_into, product_onto


@dataclass(frozen=True)
class Readout:
    """A head's last map: logits = cap(features · weightᵀ + bias).

    Attributes:
        weight: [V, W].
        bias: [V], if there is one.
        cap: c in c·tanh(logits / c), if there is one.
    """

    weight: Tensor
    bias: Tensor | None = None
    cap: float | None = None

    def logits(self, rows: Tensor) -> Tensor:
        """[n, W] -> [n, V], at least in float32; the product is made in the dtype of ``rows``."""
        logits = (rows @ self.weight.to(rows.dtype).T).to(torch.promote_types(rows.dtype, torch.float32))
        logits = logits if self.bias is None else logits + self.bias
        return logits if self.cap is None else (logits / self.cap).tanh() * self.cap

    @classmethod
    def of(cls, model: Transformer) -> Readout:
        """Of a model whose head is a `TokenHead`."""
        project: Any = model.head.project
        cap = getattr(model.head, "cap", None)
        weight = model.token.weight if project.weight is None else project.weight
        return cls(weight, project.bias, cap.cap if isinstance(cap, SoftCap) else None)


def features_of(model: Transformer, hidden: Tensor) -> Tensor:
    """What the last map of a `TokenHead` reads: [N, D] -> [N, W]."""
    assert isinstance(model.head, TokenHead)
    return model.head.features(hidden)


def summed_cross_entropy(
    features: Tensor,
    labels: Tensor,
    readout: Readout,
    *,
    smoothing: float = 0.0,
    at_once: int = 1024,
    scale: float = 1.0,
) -> Tensor:
    """Σ over tokens of (1 − ε) · (−log p(label)) + ε/V · Σ_v (−log p(v)), in nats; it can be differentiated once.

    Under autocast the products are made in its dtype, and all between them at least in float32.

    Args:
        features: [N, W].
        labels: [N], each a class.
        readout: of the head.
        smoothing: ε (Szegedy et al. 2016, §7).
        at_once: of how many tokens there are logits at a time.
        scale: see `summed_over_logits`.
    """
    term = _Labels(labels, smoothing)
    return summed_over_logits(features, readout, term, at_once=at_once, scale=scale, in_place=True)


class Term(Protocol):
    """A loss that is a sum over tokens, and its gradient by their logits."""

    def __call__(self, logits: Tensor, some: slice, *, slope: Tensor) -> Tensor:
        """The summed loss of the tokens ``some``.

        Args:
            logits: [n, V] of them, capped, at least in float32; they stay as they are.
            some: which they are.
            slope: [n, V]; the gradient by the logits is written to it.
        """


def summed_over_logits(
    features: Tensor,
    readout: Readout,
    term: Term,
    *,
    at_once: int = 1024,
    scale: float = 1.0,
    in_place: bool = False,
) -> Tensor:
    """The sum of a term over all tokens; it can be differentiated once.

    Args:
        features: [N, W].
        readout: of the head.
        term: what is summed.
        at_once: of how many tokens there are logits at a time.
        scale: about what the backward pass will begin with. The gradient is made that large from the start, which
            changes nothing but what float16 has no numbers for.
        in_place: where logits are `in_one_pass`, the term may be given them as the place for their gradient.
    """
    apply: Callable[..., Tensor] = _Summed.apply
    return apply(features, readout.weight, readout.bias, term, readout.cap, at_once, scale, in_place)


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        term: Term,
        cap: float | None,
        at_once: int,
        scale: float,
        in_place: bool,
    ) -> Tensor:
        grads = [
            torch.zeros_like(given) if given is not None and needed else None
            for given, needed in zip((features, weight, bias), ctx.needs_input_grad[:3], strict=True)
        ]
        of_features, of_weight, of_bias = grads
        rows, matrix = lowered(features, weight)
        size = max(1, min(at_once, len(rows)))  # of a process's share, there may be no row
        wide = torch.promote_types(rows.dtype, torch.float32)
        logits = rows.new_empty(size, len(weight), dtype=wide)
        slope = logits if in_place and cap is None and in_one_pass(logits) else torch.empty_like(logits)
        total = rows.new_zeros((), dtype=wide)
        with as_it_is(rows.device):
            for start in range(0, len(rows), size):
                some = slice(start, start + size)
                count = len(rows[some])
                x, by = logits[:count], slope[:count]
                product_into(x, rows[some], matrix.T)
                if bias is not None:
                    x += bias
                if cap is not None:
                    x.div_(cap).tanh_().mul_(cap)
                total += term(x, some, slope=by)
                if cap is not None:
                    by *= x.div_(cap).square_().neg_().add_(1.0)
                if scale != 1.0:
                    by *= scale
                if of_bias is not None:
                    of_bias += by.sum(0)
                low = by.to(rows.dtype)
                if of_features is not None:
                    product_into(of_features[some], low, matrix)
                if of_weight is not None:
                    product_onto(of_weight, low.T, rows[some])
        ctx.save_for_backward(*grads)
        ctx.weights, ctx.scale = (weight, bias), scale
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:
        rest = by / ctx.scale
        of_features, *grads = ctx.saved_tensors
        own = (added(*both, rest) for both in zip(ctx.weights, grads, strict=True))
        return (None if of_features is None else of_features * rest, *own, None, None, None, None, None)


@dataclass(frozen=True)
class _Labels:
    """Cross-entropy with labels [N], smoothed by ε."""

    labels: Tensor
    smoothing: float

    def __call__(self, logits: Tensor, some: slice, *, slope: Tensor) -> Tensor:
        return label_loss(logits, self.labels[some], self.smoothing, slope=slope)


def in_one_pass(logits: Tensor) -> bool:
    """Whether `label_loss` goes over them row by row, so that their gradient may take their place."""
    from transpect.runtime.borrowed import can_borrow, serves

    return can_borrow() and serves(logits)


def label_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0, *, slope: Tensor) -> Tensor:
    """The summed loss of [n, V]; its gradient by the logits is written to ``slope``: where these are `in_one_pass`, in
    their own place if it is the same tensor."""
    if in_one_pass(logits) and in_one_pass(slope):
        from transpect.runtime.borrowed import run_on_torch
        from transpect.runtime.kernels.label_loss import label_loss as pass_over

        losses = logits.new_empty(len(logits))
        run_on_torch(pass_over, logits, labels, smoothing, slope, losses)
        return losses.sum()
    at = labels[:, None]
    torch.softmax(logits, -1, out=slope)
    # the largest p is at least 1/V, so this logarithm is safe where that of a label's p is not
    norm = logits.amax(-1) - slope.amax(-1).log()
    loss = norm.sum() - (1.0 - smoothing) * logits.gather(1, at).sum()
    slope.scatter_add_(1, at, slope.new_full((), smoothing - 1.0).expand_as(at))
    if smoothing:
        loss -= smoothing * logits.mean(-1).sum()
        slope -= smoothing / logits.shape[-1]
    return loss
