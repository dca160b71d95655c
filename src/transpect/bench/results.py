"""What is found: values of every round, ratios with their bars, and what there is no figure of."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Absent", "Bar", "Figure", "Ratio", "Results", "ratios", "spread"]


@dataclass(frozen=True)
class Bar:
    """What a median ratio must be: at least ``value``, or at most where ``least`` is False."""

    value: float
    least: bool = True

    def holds(self, ratio: float) -> bool:
        """Whether a ratio reaches it."""
        return ratio >= self.value if self.least else ratio <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.value:.3g}"


@dataclass(frozen=True)
class Figure:
    """What one program reaches in one piece of work: one value a round."""

    case: str
    who: str
    measure: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Ratio:
    """Ours over that of another, one value a round."""

    case: str
    against: str
    measure: str
    values: tuple[float, ...]
    bar: Bar | None = None

    @property
    def median(self) -> float:
        """What is judged."""
        return statistics.median(self.values)

    @property
    def holds(self) -> bool:
        """Whether it reaches its bar, if it has one."""
        return self.bar is None or self.bar.holds(self.median)


@dataclass(frozen=True)
class Absent:
    """A figure that there is none of, and why. Where ``barred``, a bar can't be judged for want of it."""

    case: str
    who: str
    why: str
    barred: bool = False


@dataclass
class Results:
    """All that a task has measured.

    Attributes:
        notes: what a reader should know of a case, e.g. how many tokens are the same.
        versions: of each program and of what it stands on.
    """

    figures: list[Figure] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def short(self) -> list[str]:
        """What is under its bar, or can't be judged."""
        missed = [f"{ratio.case}, {ratio.measure} against {ratio.against}" for ratio in self.ratios if not ratio.holds]
        return missed + [f"{gone.case} against {gone.who}: {gone.why}" for gone in self.absent if gone.barred]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, ...]:
    """Ours over theirs, round by round."""
    return tuple(a / b for a, b in zip(ours, theirs, strict=True))


def spread(values: Sequence[float]) -> str:
    """Median (lowest–highest), in three digits."""
    return f"{statistics.median(values):.3g} ({min(values):.3g}–{max(values):.3g})"
