"""Schedules that stay or fall after their warm-up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from transpect.train.schedules.base import Scale, Schedule, check_floor, check_warmup, rise, updates, way


@dataclass(frozen=True)
class Constant(Schedule, kind="constant"):
    """f(n) = peak · min(1, n/w), w = warmup.

    Attributes:
        warmup: w, in updates; below 1 it is a share of the run.
    """

    warmup: int | float = 0

    def __post_init__(self) -> None:
        check_warmup(self.warmup)

    def rate(self, n: int, scale: Scale) -> float:
        return scale.peak * rise(n, updates(self.warmup, scale.steps))

    def resolved(self, steps: int) -> Constant:
        return replace(self, warmup=updates(self.warmup, steps))


@dataclass(frozen=True)
class Linear(Schedule, kind="linear"):
    """Warm-up to the peak, then a straight line to ``floor`` · peak at the last update.

    Attributes:
        warmup: in updates; below 1 it is a share of the run.
        floor: the last rate as a share of the peak.
    """

    warmup: int | float = 0.05
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_warmup(self.warmup)
        check_floor(self.floor)

    def rate(self, n: int, scale: Scale) -> float:
        warmup = updates(self.warmup, scale.steps)
        left = 1.0 - way(n, warmup, scale.steps)
        return scale.peak * rise(n, warmup) * (self.floor + (1.0 - self.floor) * left)

    def resolved(self, steps: int) -> Linear:
        return replace(self, warmup=updates(self.warmup, steps))


@dataclass(frozen=True)
class Cosine(Schedule, kind="cosine"):
    """f(n) = peak · n/w for n ≤ w, then peak · (c + (1 − c) · ½(1 + cos(π (n − w)/(N − w)))).

    w = warmup, c = floor, N the updates of the run (Loshchilov & Hutter 2017, eq. 5, one cycle).

    Attributes:
        warmup: w, in updates; below 1 it is a share of the run.
        floor: c, the last rate as a share of the peak.
    """

    warmup: int | float = 0.05
    floor: float = 0.1

    def __post_init__(self) -> None:
        check_warmup(self.warmup)
        check_floor(self.floor)

    def rate(self, n: int, scale: Scale) -> float:
        warmup = updates(self.warmup, scale.steps)
        swing = 0.5 * (1.0 + math.cos(math.pi * way(n, warmup, scale.steps)))
        return scale.peak * rise(n, warmup) * (self.floor + (1.0 - self.floor) * swing)

    def resolved(self, steps: int) -> Cosine:
        return replace(self, warmup=updates(self.warmup, steps))


@dataclass(frozen=True)
class Wsd(Schedule, kind="wsd"):
    """Warm-up, a long time at the peak, and a decay to ``floor`` · peak over the last updates (Hu et al. 2024,
    "MiniCPM", §4; Hägele et al. 2024).

    A run at the peak can be made longer and decayed later: resume it with more ``max_steps``.

    Attributes:
        warmup: in updates; below 1 it is a share of the run.
        decay: how long the decay lasts, likewise.
        shape: with x the share of the decay that is made, what is left of the peak: ``linear`` 1 − x, ``sqrt``
            1 − √x, ``cosine`` ½(1 + cos πx).
        floor: the last rate as a share of the peak.
    """

    warmup: int | float = 0.05
    decay: int | float = 0.2
    shape: Literal["linear", "sqrt", "cosine"] = "sqrt"
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_warmup(self.warmup)
        check_warmup(self.decay, "decay")
        check_floor(self.floor)

    def rate(self, n: int, scale: Scale) -> float:
        start = scale.steps - updates(self.decay, scale.steps)
        left = LEFT[self.shape](way(n, start, scale.steps))
        warm = rise(n, updates(self.warmup, scale.steps))
        return scale.peak * warm * (self.floor + (1.0 - self.floor) * left)

    def resolved(self, steps: int) -> Wsd:
        return replace(self, warmup=updates(self.warmup, steps), decay=updates(self.decay, steps))


LEFT: dict[str, Callable[[float], float]] = {
    "linear": lambda x: 1.0 - x,
    "sqrt": lambda x: 1.0 - math.sqrt(x),
    "cosine": lambda x: 0.5 * (1.0 + math.cos(math.pi * x)),
}
"""What is left of the peak when a share x of the decay is made."""
