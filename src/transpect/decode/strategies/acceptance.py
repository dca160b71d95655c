"""Which drafted tokens stay, and what comes instead of the first that doesn't: speculative sampling.

Axes: N drafted tokens, B rows, V vocabulary.

A token x drawn from q stays with probability min(1, p(x)/q(x)); else one is drawn from norm(max(p − q, 0)). Whatever q
is, the outcome has the distribution p (Leviathan et al. 2023, §2.3 and appendix A.1; Chen et al. 2023, theorem 1), and
a token stays with probability Σ min(p, q). p and q are what the filters leave, so every filter is on both sides.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

import torch
from torch import Tensor


def stream(seed: int, name: str) -> int:
    """The seed of another stream of noise of the same request, independent of its own and of those of other names."""
    digest = blake2b(struct.pack("<Q", seed % 2**64), digest_size=8, person=name.encode()).digest()
    return int.from_bytes(digest, "little")


def stays(target: Tensor, draft: Tensor, token: Tensor, noise: Tensor) -> Tensor:
    """Whether each drafted token stays: noise < p(x)/q(x).

    Args:
        target: [N, V] logits of p.
        draft: [N, V] logits of q, from which ``token`` was drawn.
        token: [N] int64.
        noise: [N] float64, uniform in [0, 1).

    Returns:
        [N] bool.
    """
    ratio = _log_chance(target, token) - _log_chance(draft, token)
    return noise.log() < ratio


def left_over(target: Tensor, draft: Tensor) -> Tensor:
    """ln max(p − q, 0) [B, V], the logits of what is drawn where a drafted token did not stay.

    Args:
        target: [B, V] logits of p.
        draft: [B, V] logits of q.
    """
    wanted = target.to(torch.float64).softmax(-1)
    rest = (wanted - draft.to(torch.float64).softmax(-1)).clamp(min=0.0)
    # where nothing is left p is q, and only rounding can have turned a token away
    return torch.where((rest > 0).any(-1, keepdim=True), rest, wanted).log()


def _log_chance(logits: Tensor, token: Tensor) -> Tensor:
    wide = logits.to(torch.float64)
    return wide.gather(-1, token[:, None])[:, 0] - wide.logsumexp(-1)
