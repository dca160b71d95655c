"""How far a run is, and whether it still gets better."""

from __future__ import annotations

from dataclasses import dataclass, field

from transpect.train.best import Best


@dataclass
class Progress:
    """Counters that a resume restores.

    Attributes:
        step: updates made.
        tokens: tokens read.
        seconds: spent on updates, over all sessions.
        best: (step, value) of the best evaluations, the best first.
        reference: the value that `patience` measures improvement against.
        stale: evaluations since it last improved by ``min_delta``.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: list[tuple[int, float]] = field(default_factory=list)
    reference: float | None = None
    stale: int = 0

    def __post_init__(self) -> None:
        self.best = [(int(step), float(value)) for step, value in self.best]  # JSON has no tuples

    @property
    def best_step(self) -> int | None:
        """The step of the best evaluation."""
        return self.best[0][0] if self.best else None

    @property
    def best_value(self) -> float | None:
        """What that evaluation gave."""
        return self.best[0][1] if self.best else None

    def judge(self, value: float, by: Best, min_delta: float = 0.0) -> int | None:
        """Take an evaluation in.

        Returns:
            its place among the best, 0 for the best so far; None where it is not among them.
        """
        if by.improves(value, self.reference, min_delta):
            self.reference, self.stale = value, 0
        else:
            self.stale += 1
        self.best = by.ranked([one for one in self.best if one[0] != self.step], self.step, value)
        steps = [step for step, _ in self.best]
        return steps.index(self.step) if self.step in steps else None

    def is_stale(self, patience: int | None) -> bool:
        """Whether ``patience`` evaluations have gone by without improvement."""
        return patience is not None and self.stale >= patience
