"""Filters: pure functions from logits to logits that take tokens out of the choice by −inf.

Axes: B batch, V vocabulary.

They are applied in this order: `ban`, `temperature`, `top_k`, `top_p`. Each takes one value a row, so that a batch may
mix requests, and none leaves a row without a token.
"""

from __future__ import annotations

import torch
from torch import Tensor

HIDDEN = float("-inf")

_SLACK = 1e-6
"""How far below ``top_p`` a sum of probabilities may fall by rounding and still count as reaching it."""


def ban(logits: Tensor, banned: Tensor) -> Tensor:
    """Take tokens out by name.

    A row whose every other token already has −inf gets them back as equals, since one of them must be chosen.

    Args:
        logits: [B, V].
        banned: [B, V] bool; at least one token a row is allowed.
    """
    left = logits.masked_fill(banned, HIDDEN)
    nothing = (left == HIDDEN).all(-1, keepdim=True)  # [B, 1]
    return torch.where(nothing & ~banned, 0.0, left)


def temperature(logits: Tensor, value: Tensor) -> Tensor:
    """logits / value, shifted so that the best token has 0; at 0 the limit: the first of the best tokens alone.

    The shift changes no probability, and keeps a very small temperature from overflowing.

    Args:
        logits: [B, V].
        value: [B], at least 0.

    Returns:
        [B, V], at least float32.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    greedy = value == 0  # [B]
    divisor = value.masked_fill(greedy, 1.0).to(wide.dtype)
    scaled = (wide - wide.amax(-1, keepdim=True)) / divisor.clamp(min=torch.finfo(wide.dtype).tiny)[:, None]
    best = torch.full_like(scaled, HIDDEN).scatter_(-1, wide.argmax(-1, keepdim=True), 0.0)
    return torch.where(greedy[:, None], best, scaled)


def top_k(logits: Tensor, k: Tensor) -> Tensor:
    """Leave the k tokens with the largest logits, exactly k: among equal ones the lower ids stay.

    Args:
        logits: [B, V].
        k: [B] int64; 0 is as 1, V or more leaves all.
    """
    size = logits.shape[-1]
    off = k >= size  # [B]
    k = k.clamp(min=1).masked_fill(off, 1)[:, None]  # [B, 1]
    largest = logits.topk(int(k.max()), dim=-1).values  # [B, max k]
    threshold = largest.gather(-1, k - 1)  # [B, 1]
    above, level = logits > threshold, logits == threshold
    room = k - above.sum(-1, keepdim=True)
    stays = above | (level & (level.cumsum(-1) <= room)) | off[:, None]
    return logits.masked_fill(~stays, HIDDEN)


def top_p(logits: Tensor, p: Tensor) -> Tensor:
    """Nucleus: leave the fewest most probable tokens that together reach p (Holtzman et al. 2020, §3.1).

    Token i stays where the tokens before it, by falling probability and then rising id, do not reach p yet. The first
    one always stays.

    Args:
        logits: [B, V].
        p: [B] in [0, 1]; 1 leaves all, 0 the best token.
    """
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    probability = logits.gather(-1, order).to(torch.float64).softmax(-1)
    before = probability.cumsum(-1) - probability  # [B, V]
    stays = (before < p.to(torch.float64)[:, None] - _SLACK) | (p >= 1)[:, None]
    stays[:, 0] = True
    return logits.masked_fill(~torch.zeros_like(stays).scatter_(-1, order, stays), HIDDEN)
