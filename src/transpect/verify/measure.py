"""How far two readings are apart, against how far they may be; see `transpect.verify.rounding` for the latter.

*Greedy tokens.* At each place the most probable token must be the reference's. Where the reference's best two are
nearer to each other than the tolerance, either may win by rounding, and such a place does not count.

Axes: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.interop.peers import Reading

__all__ = ["Difference", "Limits", "compare", "compare_tokens"]

Limits = Sequence[dict[str, float]]
"""For each sample, how far each output may be from the reference's."""


@dataclass(frozen=True)
class Difference:
    """A way against the reference, at the sample and output that come nearest to their tolerance, or exceed it most.

    Attributes:
        delta: max |Δ| there; infinite where a number is missing or is none; None where only tokens are compared.
        tolerance: how large it may be.
        place: which sample, by its number.
        greedy_equal: places with the same most probable token, in all samples; None where nothing is greedy.
        greedy_total: places in all.
        greedy_wrong: places with another token although the reference's best two are further apart than the tolerance.
    """

    delta: float | None
    tolerance: float
    place: int
    greedy_equal: int | None = None
    greedy_total: int | None = None
    greedy_wrong: int = 0

    @property
    def passes(self) -> bool:
        """Whether the way is right."""
        return (self.delta is None or self.delta <= self.tolerance) and not self.greedy_wrong


def compare(found: Sequence[Reading], wanted: Sequence[Reading], limits: Limits, *, greedy: bool) -> Difference:
    """Readings of a way against those of the reference, for outputs that both have.

    Args:
        found: of the way.
        wanted: of the reference, for the same samples.
        limits: how far they may be apart.
        greedy: whether to compare the most probable tokens too.
    """
    worst = (-1.0, 0.0, 0.0, 0)
    for place, (f, w, limit) in enumerate(zip(found, wanted, limits, strict=True)):
        for name in w.keys() & f.keys():
            delta, tolerance = _distance(f[name], w[name]), limit[name]
            excess = delta / tolerance if tolerance else (math.inf if delta else 0.0)
            worst = max(worst, (excess, delta, tolerance, place))
    assert worst[0] >= 0, "the two have an output in common"
    _, delta, tolerance, place = worst
    if not greedy or math.isinf(delta):
        return Difference(delta, tolerance, place)
    tokens = [f["logits"].argmax(-1) for f in found]
    equal, total, wrong = _count(tokens, [w["logits"] for w in wanted], limits)
    return Difference(delta, tolerance, place, equal, total, wrong)


def compare_tokens(chosen: Sequence[Sequence[int]], wanted: Sequence[Tensor], limits: Limits) -> Difference:
    """Tokens that were chosen, against the reference's logits [T, V] at the same places."""
    tokens = [torch.tensor(list(row), dtype=torch.int64) for row in chosen]
    equal, total, wrong = _count(tokens, wanted, limits)
    return Difference(None, max(limit["logits"] for limit in limits), 0, equal, total, wrong)


def _count(tokens: Sequence[Tensor], wanted: Sequence[Tensor], limits: Limits) -> tuple[int, int, int]:
    """(places with the reference's token, places, places with another that counts)."""
    equal, total, wrong = 0, 0, 0
    for row, logits, limit in zip(tokens, wanted, limits, strict=True):
        best = logits.topk(min(2, logits.shape[-1]), -1)
        same = row.cpu() == best.indices[..., 0].cpu()
        clear = (best.values[..., 0] - best.values[..., -1]).cpu() > limit["logits"]
        equal, total, wrong = equal + int(same.sum()), total + same.numel(), wrong + int((~same & clear).sum())
    return equal, total, wrong


def _distance(found: Tensor, wanted: Tensor) -> float:
    if found.shape != wanted.shape:
        return math.inf
    difference = (found.double() - wanted.double()).abs_()
    largest = float(difference.max()) if difference.numel() else 0.0
    if math.isnan(largest):  # −inf equals −inf
        largest = float(difference.masked_fill_(found == wanted, 0.0).max())
    return largest if math.isfinite(largest) else math.inf
