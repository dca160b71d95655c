"""Do draws follow a distribution? Pearson's χ² test, and Holm's for many of them at once."""

from __future__ import annotations

import torch
from torch import Tensor


def p_value(counts: Tensor, probability: Tensor) -> float:
    """Of Pearson's χ² test. Cells of probability 0 must be empty; those of less than 5 draws are counted as one."""
    assert (counts[probability == 0] == 0).all()
    counts, probability = counts.double(), probability.double()
    expected = probability * counts.sum()
    rare = expected < 5
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = torch.tensor((len(counts) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2)) if len(counts) > 1 else 1.0


def holm(p_values: dict[str, float], level: float = 0.01) -> list[str]:
    """The hypotheses that Holm's step-down procedure rejects."""
    rejected = []
    for i, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > level / (len(p_values) - i):
            break
        rejected.append(name)
    return rejected
