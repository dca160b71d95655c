"""The definition of attention: every score is written down. All other kernels are proven equal to this one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from transpect.core.kernels.base import Exact, Scoring
from transpect.core.view import View


@dataclass(frozen=True)
class Naive(Exact, kind="naive"):
    """softmax(q kᵀ · scale + bias) v in any dtype up to float64; O(T·S) memory; shows its weights."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)  # [B, H, S, E]
        scores = (query * scoring.scale) @ key.transpose(-1, -2)  # [B, H, T, S]; scaled first, for float16's range
        if scoring.soft_cap is not None:
            scores = scoring.soft_cap * torch.tanh(scores / scoring.soft_cap)
        if scoring.bias is not None:
            scores = scores + scoring.bias.whole
        weights = masked_softmax(scores, view)
        scoring.see("attention_weights", weights)
        return functional.dropout(weights, scoring.dropout) @ value


def masked_softmax(scores: Tensor, view: View) -> Tensor:
    """Softmax over visible keys, at least in float32. A row that sees nothing is 0, and so is its gradient."""
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    # a row of nothing but −inf would be NaN forward and backward: open it, and close it again after the softmax
    weights = wide.masked_fill(~view.opened, float("-inf")).softmax(-1)
    return weights.masked_fill(~view.mask, 0.0).to(scores.dtype)
