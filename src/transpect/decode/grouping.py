"""Which texts are read in one pass: padding costs as much as tokens, and each pass costs something of its own."""

from __future__ import annotations

from collections.abc import Sequence

from transpect.core import Transformer

__all__ = ["groups", "tokens_of_a_pass"]

WEIGHTS = 24.0
"""Tokens that could be multiplied in the time in which a product with few rows reads and packs its weights."""
CALLS, RATE = 150e-6, 60e9
"""Seconds that the calls of a layer take whatever they compute, and multiplications a second. Like `WEIGHTS` these are
a CPU's, measured; nothing but time depends on them."""


def tokens_of_a_pass(model: Transformer) -> float:
    """How many more tokens could be read in the time that one more pass takes."""
    config = next(iter(model.config.towers.values()))
    weights = sum(parameter.numel() for parameter in next(iter(model.towers.values())).parameters())
    return WEIGHTS + CALLS * config.n_layers * RATE / max(1, weights)


def groups(lengths: Sequence[int], a_pass: float) -> list[list[int]]:
    """Texts by their indices, in passes of texts of about one length.

    The split of the sorted lengths with the least Σ (count · longest + ``a_pass``) over the passes; texts of one
    length are always together. By dynamic programming over the lengths that differ.

    Args:
        lengths: of each text.
        a_pass: what a pass costs besides, in tokens.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    # ends[k]: where the texts end that are no longer than the k-th length
    ends = [0, *(end for end in range(1, len(order) + 1) if _rises(lengths, order, end))]
    least, start = [0.0], [0]
    for last in range(1, len(ends)):
        longest = lengths[order[ends[last] - 1]]
        cost, first = min(
            (least[first] + (ends[last] - ends[first]) * longest + a_pass, first) for first in range(last)
        )
        least.append(cost)
        start.append(first)
    found: list[list[int]] = []
    last = len(ends) - 1
    while last:
        found.append(order[ends[start[last]] : ends[last]])
        last = start[last]
    return found[::-1]


def _rises(lengths: Sequence[int], order: Sequence[int], end: int) -> bool:
    return end == len(order) or lengths[order[end]] > lengths[order[end - 1]]
