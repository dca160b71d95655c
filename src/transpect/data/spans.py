"""Random spans: how long they are and where they lie, each drawn from a generator that is passed in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transpect.data.draws import shuffled
from transpect.data.ragged import Ints

Floats = NDArray[np.float64]


def rounded(x: float, rng: np.random.Generator) -> int:
    """⌊x⌋ or ⌈x⌉, by lot, so that the mean is x."""
    whole = int(x)
    return whole + int(rng.random() < x - whole)


def shares(weights: Sequence[float]) -> Floats:
    """Up to which share of [0, 1) each length 0, 1, 2, … reaches; the last one reaches 1."""
    total = np.cumsum(np.asarray(weights, np.float64))
    out: Floats = total / total[-1]
    return out


def poisson(mean: float) -> Floats:
    """`shares` of the Poisson distribution, as far as double precision tells lengths apart."""
    chances = [np.exp(-mean)]
    while len(chances) <= mean or chances[-1] > np.finfo(np.float64).eps * 1e-3:
        chances.append(chances[-1] * mean / len(chances))
    return shares(chances)


def lengths_of(total: int, by: Floats, rng: np.random.Generator) -> Ints:
    """Lengths of spans that add up to ``total``, in random order: drawn one by one, the last one cut to what is left.

    Args:
        total: how many places they take together.
        by: `shares` of the lengths.
        rng: what draws.
    """
    drawn: list[int] = []
    left = total
    while left > 0:
        length = min(int(np.searchsorted(by, rng.random(), side="right")), left)
        drawn.append(length)
        left -= length
    return np.array(drawn, np.int64)[shuffled(len(drawn), rng)]


def scattered(lengths: Ints, total: int, rng: np.random.Generator) -> Ints:
    """Where spans of these lengths start among ``total`` places: in this order, apart from each other or side by side,
    every arrangement as likely as any other. A span without length stands between two places.
    """
    free = total - int(lengths.sum())
    slots = np.sort(shuffled(free + len(lengths), rng)[: len(lengths)])
    return slots + np.cumsum(lengths - 1) - (lengths - 1)


def composition(total: int, parts: int, rng: np.random.Generator) -> Ints:
    """``total`` as the sum of ``parts`` whole numbers from 1 on, in order, every such sum as likely as any other."""
    cuts = 1 + np.sort(shuffled(max(total - 1, 0), rng)[: parts - 1])
    return np.diff(np.concatenate([[0], cuts, [total]]))
