"""Filters that sampling alone needs: they look at the distribution, sharpen it, and cut its tail off by −inf.

Axes: B batch, V vocabulary.

Each takes one value a row. None changes the logit of a token that it leaves (but `temperature`), and each leaves the
most probable token, or the most typical one, whatever its value.
"""

from __future__ import annotations

import torch
from torch import Tensor

HIDDEN = float("-inf")

_SLACK = 1e-6
"""How far below its bound a sum of probabilities may fall by rounding, or (as a share) a probability, and still count
as reaching it."""

_FIRST_LOOK = 256
"""How many tokens a nucleus is looked for in before all of them are put in order."""


def temperature(logits: Tensor, value: Tensor) -> Tensor:
    """logits / value, shifted so that the best token has 0; at 0 the limit: the first of the best tokens alone.

    The shift changes no probability, and keeps a very small temperature from overflowing. One beyond the numbers of the
    dtype counts as the largest of them, so that what is −inf stays so.

    Args:
        logits: [B, V].
        value: [B], at least 0.

    Returns:
        [B, V], at least float32.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    greedy = value == 0  # [B]
    numbers = torch.finfo(wide.dtype)
    divisor = value.masked_fill(greedy, 1.0).to(wide.dtype).clamp(numbers.tiny, numbers.max)
    scaled = (wide - wide.amax(-1, keepdim=True)) / divisor[:, None]
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
    stays = (logits >= threshold) | off[:, None]
    if bool((stays.sum(-1, keepdim=True) > k).any()):
        above, level = logits > threshold, logits == threshold
        room = k - above.sum(-1, keepdim=True)
        stays = above | (level & (level.cumsum(-1) <= room)) | off[:, None]
    return _keep(logits, stays)


def top_p(logits: Tensor, p: Tensor) -> Tensor:
    """Nucleus: leave the fewest most probable tokens that together reach p (Holtzman et al. 2020, §3.1).

    Token i stays where the tokens before it, by falling probability and then rising id, do not reach p yet. The first
    one always stays.

    Args:
        logits: [B, V].
        p: [B] in [0, 1]; 1 leaves all, 0 the best token.
    """
    return _keep(logits, _fewest(logits, logits, p))


def min_p(logits: Tensor, p: Tensor) -> Tensor:
    """Leave the tokens with at least p times the probability of the best (Nguyen et al. 2024, §3).

    Args:
        logits: [B, V].
        p: [B] in [0, 1]; 0 leaves all, 1 the best token and its equals.
    """
    best = logits.amax(-1, keepdim=True)
    ratio = (logits - best).to(torch.float64).exp()  # [B, V]
    return _keep(logits, ratio >= _reached(p))


def typical_p(logits: Tensor, mass: Tensor) -> Tensor:
    """Leave the fewest most typical tokens that together reach ``mass`` (Meister et al. 2023, §3).

    The most typical token is the one whose surprise −ln p is nearest to the expected one, the entropy
    H = −Σ p ln p. Among equally typical ones the lower ids stay.

    Args:
        logits: [B, V].
        mass: [B] in [0, 1]; 1 leaves all, 0 the most typical token.
    """
    log = logits.to(torch.float64).log_softmax(-1)
    distance = (-log - _entropy(log)[:, None]).abs()  # inf for what is out already
    return _keep(logits, _fewest(logits, -distance, mass))


def epsilon_cutoff(logits: Tensor, epsilon: Tensor) -> Tensor:
    """Leave the tokens with a probability of at least ε, and the best (Hewitt et al. 2022, §5.2).

    Args:
        logits: [B, V].
        epsilon: [B] in [0, 1]; 0 leaves all.
    """
    return _cut(logits, logits.to(torch.float64).log_softmax(-1), epsilon.to(torch.float64))


def eta_cutoff(logits: Tensor, epsilon: Tensor) -> Tensor:
    """Leave the tokens with a probability of at least η = min(ε, √ε e^−H), and the best; H is the entropy in nats
    (Hewitt et al. 2022, §5.3).

    Args:
        logits: [B, V].
        epsilon: [B] in [0, 1]; 0 leaves all.
    """
    log, wide = logits.to(torch.float64).log_softmax(-1), epsilon.to(torch.float64)
    return _cut(logits, log, torch.minimum(wide, wide.sqrt() * (-_entropy(log)).exp()))


def _fewest(logits: Tensor, worth: Tensor, mass: Tensor) -> Tensor:
    """[B, V] bool: the fewest tokens, by falling worth and then rising id, that together reach a probability.

    They are mostly few, and a sort of V is slow, so they are looked for among the best first. That is enough where the
    last one that stays is better than the last one looked at, for then its equals have been seen as well.
    """
    size = logits.shape[-1]
    total = logits.to(torch.float64).logsumexp(-1, keepdim=True)  # [B, 1]
    wanted, off = (mass.to(torch.float64) - _SLACK)[:, None], (mass >= 1)[:, None]  # [B, 1]
    look = min(_FIRST_LOOK, size)
    while True:
        order = worth.topk(look, dim=-1).indices.sort(dim=-1).values  # [B, look], by id
        order = order.gather(-1, worth.gather(-1, order).sort(dim=-1, descending=True, stable=True).indices)
        probability = (logits.gather(-1, order).to(torch.float64) - total).exp()
        stays = (probability.cumsum(-1) - probability) < wanted
        stays[:, 0] = True
        last = order.gather(-1, stays.sum(-1, keepdim=True) - 1)  # [B, 1]
        seen = worth.gather(-1, last) > worth.gather(-1, order[:, -1:])
        if look == size or bool((seen | off).all()):
            return torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, order, stays) | off
        look = min(look * 8, size)


def _cut(logits: Tensor, log: Tensor, least: Tensor) -> Tensor:
    return _keep(logits, (log.exp() >= _reached(least)) | (logits == logits.amax(-1, keepdim=True)))


def _reached(least: Tensor) -> Tensor:
    return (least.to(torch.float64) * (1 - _SLACK))[:, None]


def _keep(logits: Tensor, stays: Tensor) -> Tensor:
    return logits.masked_fill(~stays, HIDDEN)


def _entropy(log: Tensor) -> Tensor:
    """[B], in nats, of log-probabilities [B, V]; 0 ln 0 = 0."""
    return -(log.exp() * log).nansum(-1)
