"""Learning-rate schedules: the rate as a function of how many updates the optimizer has made.

The n-th update (n = 1, 2, …) is made at rate f(n), so after n updates the rate is f(n), whatever the accumulation,
the batch size or the number of resumes. Warm-up rises in a straight line from 0, which no update uses, to the peak at
n = warmup.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from transpect.base.codec import Variant
from transpect.base.errors import ConfigError


@dataclass(frozen=True)
class Scale:
    """What a schedule measures itself by.

    Attributes:
        peak: the optimizer's learning rate.
        steps: N, the updates of the whole run.
        d_model: D, the width of the model.
    """

    peak: float
    steps: int
    d_model: int


class Schedule(Variant):
    """A schedule with its options; ``default_rate`` is the peak where a recipe gives none, and None the optimizer's."""

    default_rate: ClassVar[float | None] = None

    def rate(self, n: int, scale: Scale) -> float:
        """f(n) for n ≥ 0 updates made."""
        raise AssertionError("abstract")

    def resolved(self, steps: int) -> Schedule:
        """The same schedule with shares of the run written as numbers of updates."""
        raise AssertionError("abstract")


@dataclass(frozen=True)
class Constant(Schedule, kind="constant"):
    """f(n) = peak · min(1, n/w), w = warmup.

    Attributes:
        warmup: w, in updates; below 1 it is a share of the run.
    """

    warmup: int | float = 0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)

    def rate(self, n: int, scale: Scale) -> float:
        return scale.peak * rise(n, _updates(self.warmup, scale.steps))

    def resolved(self, steps: int) -> Constant:
        return replace(self, warmup=_updates(self.warmup, steps))


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
        _check_warmup(self.warmup)
        _check_floor(self.floor)

    def rate(self, n: int, scale: Scale) -> float:
        warmup = _updates(self.warmup, scale.steps)
        left = 1.0 - _share(n, warmup, scale.steps)
        return scale.peak * rise(n, warmup) * (self.floor + (1.0 - self.floor) * left)

    def resolved(self, steps: int) -> Linear:
        return replace(self, warmup=_updates(self.warmup, steps))


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
        _check_warmup(self.warmup)
        _check_floor(self.floor)

    def rate(self, n: int, scale: Scale) -> float:
        warmup = _updates(self.warmup, scale.steps)
        swing = 0.5 * (1.0 + math.cos(math.pi * _share(n, warmup, scale.steps)))
        return scale.peak * rise(n, warmup) * (self.floor + (1.0 - self.floor) * swing)

    def resolved(self, steps: int) -> Cosine:
        return replace(self, warmup=_updates(self.warmup, steps))


@dataclass(frozen=True)
class Noam(Schedule, kind="noam"):
    """f(n) = peak · D^−½ · min(n^−½, n · w^−3/2) (Vaswani et al. 2017, eq. 3), where the paper's peak is 1.

    Attributes:
        warmup: w, in updates; below 1 it is a share of the run.
    """

    default_rate: ClassVar[float | None] = 1.0
    warmup: int | float = 0.1

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)

    def rate(self, n: int, scale: Scale) -> float:
        warmup = max(1, _updates(self.warmup, scale.steps))
        shape = n / (warmup * math.sqrt(warmup)) if n < warmup else 1.0 / math.sqrt(n)
        return scale.peak / math.sqrt(scale.d_model) * shape

    def resolved(self, steps: int) -> Noam:
        return replace(self, warmup=_updates(self.warmup, steps))


def rise(n: int, warmup: int) -> float:
    """The share of the peak that warm-up has reached: min(1, n/w)."""
    return 1.0 if n >= warmup else n / warmup


def _share(n: int, start: int, end: int) -> float:
    """How far n is on the way from ``start`` to ``end``, kept in [0, 1]; a way of no length is behind us."""
    return min(1.0, max(0, n - start) / (end - start)) if end > start else float(n > start)


def _updates(warmup: int | float, steps: int) -> int:
    return warmup if isinstance(warmup, int) else round(warmup * steps)


def _check_warmup(warmup: int | float) -> None:
    if warmup < 0 or (isinstance(warmup, float) and warmup >= 1):
        raise ConfigError(
            "warmup must be a whole number of updates, or a share of the run below 1",
            value=warmup,
            remedy="Write 200, or 0.05.",
        )


def _check_floor(floor: float) -> None:
    if not 0.0 <= floor <= 1.0:
        raise ConfigError("floor must be a share of the peak rate, from 0 to 1", value=floor)
