"""What every schedule has in common."""

from __future__ import annotations

from dataclasses import dataclass
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
        drops: how often `Plateau` has lowered the rate.
    """

    peak: float
    steps: int
    d_model: int
    drops: int = 0


class Schedule(Variant):
    """A schedule with its options; ``default_rate`` is the peak where a recipe gives none, and None the optimizer's."""

    default_rate: ClassVar[float | None] = None

    def rate(self, n: int, scale: Scale) -> float:
        """f(n) for n ≥ 0 updates made."""
        raise AssertionError("abstract")

    def resolved(self, steps: int) -> Schedule:
        """The same schedule with shares of the run written as numbers of updates."""
        raise AssertionError("abstract")


def rise(n: int, warmup: int) -> float:
    """The share of the peak that warm-up has reached: min(1, n/w)."""
    return 1.0 if n >= warmup else n / warmup


def way(n: int, start: int, end: int) -> float:
    """How far n is on the way from ``start`` to ``end``, kept in [0, 1]; a way of no length is behind us."""
    return min(1.0, max(0, n - start) / (end - start)) if end > start else float(n > start)


def updates(warmup: int | float, steps: int) -> int:
    """A number of updates, given as such or as a share of the run."""
    return warmup if isinstance(warmup, int) else round(warmup * steps)


def check_warmup(warmup: int | float, name: str = "warmup") -> None:
    """Refuse what is neither a number of updates nor a share of the run.

    Raises:
        ConfigError: it is negative, or a fraction above 1.
    """
    if warmup < 0 or (isinstance(warmup, float) and warmup >= 1):
        raise ConfigError(
            f"{name} must be a whole number of updates, or a share of the run below 1",
            value=warmup,
            remedy="Write 200, or 0.05.",
        )


def check_floor(floor: float) -> None:
    """Refuse what is no share of the peak.

    Raises:
        ConfigError: it is below 0 or above 1.
    """
    if not 0.0 <= floor <= 1.0:
        raise ConfigError("floor must be a share of the peak rate, from 0 to 1", value=floor)
