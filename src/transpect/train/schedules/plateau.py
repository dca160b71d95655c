"""A schedule that waits for the valid loss to stand still."""

from __future__ import annotations

from dataclasses import dataclass, replace

from transpect.base.checks import within
from transpect.base.errors import ConfigError
from transpect.train.schedules.base import Scale, Schedule, check_floor, check_warmup, rise, updates


@dataclass(frozen=True)
class Standstill:
    """What `Plateau` has seen of the valid loss.

    Attributes:
        best: the lowest loss that counted as an improvement.
        stale: evaluations since then, or since the last drop.
        rest: evaluations that are still not counted.
        drops: how often the rate was lowered.
    """

    best: float | None = None
    stale: int = 0
    rest: int = 0
    drops: int = 0


@dataclass(frozen=True)
class Plateau(Schedule, kind="plateau"):
    """f(n) = peak · min(1, n/w) · max(floor, factor^k), where k counts how often the valid loss stood still: for more
    than ``patience`` evaluations it was not below (1 − threshold) times the best.

    The rule is that of `torch.optim.lr_scheduler.ReduceLROnPlateau`; what it has seen is part of the training state.

    Attributes:
        warmup: w, in updates; below 1 it is a share of the run.
        factor: of the rate, each time.
        patience: evaluations without improvement that are borne.
        threshold: the share by which a loss must be lower to be an improvement.
        cooldown: evaluations after a drop that are not counted.
        floor: the lowest rate as a share of the peak.
    """

    warmup: int | float = 0.05
    factor: float = 0.5
    patience: int = 3
    threshold: float = 1e-4
    cooldown: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_warmup(self.warmup)
        check_floor(self.floor)
        if not 0.0 < self.factor < 1.0:
            raise ConfigError("factor must be above 0 and below 1", value=self.factor)
        if not 0.0 <= self.threshold < 1.0:
            raise ConfigError("threshold must be at least 0 and below 1", value=self.threshold)
        within("patience", self.patience, 0)
        within("cooldown", self.cooldown, 0)

    def rate(self, n: int, scale: Scale) -> float:
        warm = rise(n, updates(self.warmup, scale.steps))
        return scale.peak * warm * max(self.floor, self.factor**scale.drops)

    def resolved(self, steps: int) -> Plateau:
        return replace(self, warmup=updates(self.warmup, steps))

    def after(self, seen: Standstill, loss: float) -> Standstill:
        """What has been seen once an evaluation gave ``loss``."""
        if seen.best is None or loss < seen.best * (1.0 - self.threshold):
            seen = replace(seen, best=loss, stale=0)
        else:
            seen = replace(seen, stale=seen.stale + 1)
        if seen.rest:
            seen = replace(seen, rest=seen.rest - 1, stale=0)
        if seen.stale > self.patience:
            seen = replace(seen, stale=0, rest=self.cooldown, drops=seen.drops + 1)
        return seen
