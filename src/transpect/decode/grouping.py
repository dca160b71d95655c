"""Which texts are read in one pass: attention pays for padding, and each pass costs something of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from transpect.core import Transformer

__all__ = ["Costs", "costs_of", "groups"]

WEIGHTS = 24.0
"""Tokens that could be multiplied in the time in which a product with few rows reads and packs its weights."""
CALLS, RATE = 150e-6, 60e9
"""Seconds that the calls of a layer take whatever they compute, and multiplications a second."""
SLOWER = 4.0
"""How much longer attention takes for a multiplication than a product with weights. These four are a CPU's, measured;
nothing but time depends on them."""


class Costs(NamedTuple):
    """What a pass costs besides the real tokens, which cost the same in every pass; in tokens.

    Attributes:
        a_pass: for being one.
        a_pair: for each two tokens of a padded row, of which one looks at the other.
    """

    a_pass: float
    a_pair: float

    def of(self, count: int, longest: int) -> float:
        """Of a pass of so many texts."""
        return count * longest**2 * self.a_pair + self.a_pass


def costs_of(model: Transformer) -> Costs:
    """Of a model's first tower, whose layers are taken for alike."""
    tower: Any
    config, tower = next(iter(model.config.towers.values())), next(iter(model.towers.values()))
    weights = max(1, config.n_layers * sum(parameter.numel() for parameter in tower.stack.layers[0].parameters()))
    pairs = 2 * model.config.d_model * config.n_layers
    return Costs(WEIGHTS + CALLS * config.n_layers * RATE / weights, SLOWER * pairs / weights)


def groups(lengths: Sequence[int], costs: Costs) -> list[list[int]]:
    """Texts by their indices, in passes of texts of about one length.

    The split of the sorted lengths into passes that cost the least; texts of one length are always together. By dynamic
    programming over the lengths that differ.

    Args:
        lengths: of each text.
        costs: of a pass.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    # ends[k]: where the texts end that are no longer than the k-th length
    ends = [0, *(end for end in range(1, len(order) + 1) if _rises(lengths, order, end))]
    least, start = [0.0], [0]
    for last in range(1, len(ends)):
        longest = lengths[order[ends[last] - 1]]
        cost, first = min((least[first] + costs.of(ends[last] - ends[first], longest), first) for first in range(last))
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
