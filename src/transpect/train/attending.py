"""torch's attention with causal passes of our own, forward and backward, for training on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transpect.core.kernels import Scoring, Sdpa
from transpect.core.kernels.autocast import lowered
from transpect.core.view import View


def attending(kernel: Sdpa) -> Sdpa:
    """How a layer that has this kernel attends in training on a CPU."""
    from transpect.runtime.borrowed import can_borrow

    return OnTorchsThreads(**vars(kernel)) if can_borrow() else kernel


@dataclass(frozen=True)
class OnTorchsThreads(Sdpa):
    """`Sdpa`, whose causal passes in float32 are loops of our own (`transpect.runtime.kernels.causal`).

    A key-value head of a row is the work of one thread; where there are fewer of them than threads, torch's own is left
    to do it.
    """

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        plain = view.triangle and scoring.bias is None and scoring.soft_cap is None and not scoring.dropout
        if (
            plain
            and lowered(query)[0].dtype == key.dtype == torch.float32
            and key.shape[0] * key.shape[1] >= torch.get_num_threads()
        ):
            apply: Callable[..., Tensor] = _Causal.apply
            return apply(query, key, value, scoring.scale)
        return super().attend(query, key, value, view, scoring)


class _Causal(torch.autograd.Function):
    """softmax(scale·q kᵀ, later keys left out) v: [B, H, T, E], [B, K, T, E] twice -> [B, H, T, E]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        from transpect.runtime.borrowed import run_on_torch
        from transpect.runtime.kernels.causal import causal

        rows = [x.transpose(1, 2).contiguous() for x in (query, key, value)]  # no copy of what a projection gives
        out, total = torch.empty_like(rows[0]), torch.empty(query.shape[:3])
        run_on_torch(causal, *rows, scale, out, total)
        ctx.save_for_backward(*rows, out, total)
        ctx.scale = scale
        return out.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Any, ...]:
        from transpect.runtime.borrowed import run_on_torch
        from transpect.runtime.kernels.causal import pull_causal

        *rows, out, total = ctx.saved_tensors
        slopes = [torch.empty_like(x) for x in rows]
        run_on_torch(pull_causal, *rows, ctx.scale, out, total, by.transpose(1, 2).contiguous(), *slopes)
        return *(slope.transpose(1, 2) for slope in slopes), None
