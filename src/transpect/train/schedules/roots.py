"""Schedules that fall with the root of the number of updates, and so need no end."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from transpect.train.schedules.base import Scale, Schedule, check_warmup, updates


@dataclass(frozen=True)
class Noam(Schedule, kind="noam"):
    """f(n) = peak · D^−½ · min(n^−½, n · w^−3/2) (Vaswani et al. 2017, eq. 3), where the paper's peak is 1.

    Attributes:
        warmup: w, in updates; below 1 it is a share of the run.
    """

    default_rate: ClassVar[float | None] = 1.0
    warmup: int | float = 0.1

    def __post_init__(self) -> None:
        check_warmup(self.warmup)

    def rate(self, n: int, scale: Scale) -> float:
        warmup = max(1, updates(self.warmup, scale.steps))
        shape = n / (warmup * math.sqrt(warmup)) if n < warmup else 1.0 / math.sqrt(n)
        return scale.peak / math.sqrt(scale.d_model) * shape

    def resolved(self, steps: int) -> Noam:
        return replace(self, warmup=updates(self.warmup, steps))


@dataclass(frozen=True)
class InverseSqrt(Schedule, kind="inverse_sqrt"):
    """f(n) = peak · min(n/w, √(w/n)), w = warmup: `Noam`'s shape, whose top is the peak (Raffel et al. 2020, §3.1.2).

    Attributes:
        warmup: w, in updates; below 1 it is a share of the run.
    """

    warmup: int | float = 0.05

    def __post_init__(self) -> None:
        check_warmup(self.warmup)

    def rate(self, n: int, scale: Scale) -> float:
        warmup = max(1, updates(self.warmup, scale.steps))
        return scale.peak * (n / warmup if n < warmup else math.sqrt(warmup / n))

    def resolved(self, steps: int) -> InverseSqrt:
        return replace(self, warmup=updates(self.warmup, steps))
