"""How far two readings are apart, and how far they may be.

*Tolerance.* A way that is right differs from the reference by rounding alone, and rounding is relative: to the
precision of the numbers, and to how large the numbers are. So each output is held to

    max |Δ| ≤ share(dtype) · scale,    scale = √(mean of the reference's outputs²)

with a share for each dtype:

- float64 1e-9, float32 2e-4. Rounding of float32 (6e-8 an operation, growing slowly with depth) is found to reach 1e-6 to
  2e-5 of the scale, in published models of 6 to 32 layers. Mistakes are found from 1e-3 on and mostly near 1: a position
  that is off by one, a key that leaks in from padding, a bias that is left out, another RoPE layout. 2e-4 stands between.
- float16 2e-2, bfloat16 1.5e-1: 11 and 8 bits of mantissa round 2^13 and 2^16 times as coarsely. Small mistakes can
  hide below that; so verify in float32 first, which is why it is the default.
- llama.cpp on quantised weights 2.5e-1: it rounds what it multiplies to 8 bits too, in each layer, where the reference
  multiplies exactly by the same weights. That catches another layout, another norm, another rotation, and not a last digit.
  On weights that are not quantised it is held to 2e-3: its GELU, SiLU and softmax read tables of float16.

*Greedy tokens.* At each place the most probable token must be the reference's. Where the reference's best two are nearer to
each other than the tolerance, either may win by rounding, and such a place does not count.

Axes: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.interop.peers import Reading

__all__ = ["QUANTISED", "SHARES", "UNQUANTISED", "Difference", "Scale", "compare", "compare_tokens", "scale_of"]

SHARES = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1.5e-1}
QUANTISED, UNQUANTISED = 2.5e-1, 2e-3

Scale = dict[str, float]


@dataclass(frozen=True)
class Difference:
    """A way against the reference, at the output where it is largest against its tolerance.

    Attributes:
        delta: max |Δ|; infinite where one of them is not a number, or the shapes differ.
        tolerance: how large it may be.
        greedy_equal: places with the same most probable token; None where there is nothing greedy.
        greedy_total: places in all.
        greedy_wrong: places with another token although the reference's best two are further apart than the tolerance.
    """

    delta: float | None
    tolerance: float
    greedy_equal: int | None = None
    greedy_total: int | None = None
    greedy_wrong: int = 0

    @property
    def passes(self) -> bool:
        """Whether the way is right."""
        return (self.delta is None or self.delta <= self.tolerance) and not self.greedy_wrong


def scale_of(readings: Sequence[Reading]) -> Scale:
    """The root mean square of each output over all samples."""
    names = readings[0].keys()
    return {
        name: float(torch.cat([r[name].double().flatten() for r in readings]).square().mean().sqrt()) for name in names
    }


def compare(
    found: Sequence[Reading], wanted: Sequence[Reading], scale: Scale, share: float, *, greedy: bool
) -> Difference:
    """Readings of a way against those of the reference, for outputs that both have.

    Args:
        found: of the way.
        wanted: of the reference, for the same samples.
        scale: see `scale_of`.
        share: of the scale, see the module.
        greedy: whether to compare the most probable tokens too.
    """
    worst: tuple[float, float, float] = (-1.0, 0.0, 0.0)
    for name in wanted[0].keys() & found[0].keys():
        delta = max(_distance(f[name], w[name]) for f, w in zip(found, wanted, strict=True))
        tolerance = share * scale[name]
        excess = delta / tolerance if tolerance else (math.inf if delta else 0.0)
        worst = max(worst, (excess, delta, tolerance))
    _, delta, tolerance = worst
    if not greedy or math.isinf(delta):
        return Difference(delta, tolerance)
    equal, total, wrong = 0, 0, 0
    for f, w in zip(found, wanted, strict=True):
        same, clear = _greedy(f["logits"].argmax(-1), w["logits"], tolerance)
        equal, total, wrong = equal + int(same.sum()), total + same.numel(), wrong + int((~same & clear).sum())
    return Difference(delta, tolerance, equal, total, wrong)


def compare_tokens(chosen: Sequence[Sequence[int]], wanted: Sequence[Tensor], tolerance: float) -> Difference:
    """Tokens that were chosen, against the reference's logits [T, V] at the same places."""
    equal, total, wrong = 0, 0, 0
    for tokens, logits in zip(chosen, wanted, strict=True):
        same, clear = _greedy(torch.tensor(list(tokens), dtype=torch.int64), logits, tolerance)
        equal, total, wrong = equal + int(same.sum()), total + same.numel(), wrong + int((~same & clear).sum())
    return Difference(None, tolerance, equal, total, wrong)


def _greedy(tokens: Tensor, logits: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """[T] whether each token is the reference's, and whether its best two are further apart than the tolerance."""
    best = logits.topk(min(2, logits.shape[-1]), -1)
    margin = best.values[..., 0] - best.values[..., -1]
    return tokens == best.indices[..., 0], margin > tolerance


def _distance(found: Tensor, wanted: Tensor) -> float:
    if found.shape != wanted.shape:
        return math.inf
    difference = (found.double() - wanted.double()).abs().masked_fill(found == wanted, 0.0)  # −inf equals −inf
    largest = float(difference.max()) if difference.numel() else 0.0
    return largest if math.isfinite(largest) else math.inf
