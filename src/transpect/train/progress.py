"""How far a run is, and whether it still gets better."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """Counters that a resume restores.

    Attributes:
        step: updates made.
        tokens: tokens read.
        seconds: spent on updates, over all sessions.
        best_loss: the lowest valid loss, nats per token.
        best_step: where that was.
        reference: the loss that `patience` measures improvement against.
        stale: evaluations since it last fell by ``min_delta``.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_loss: float | None = None
    best_step: int | None = None
    reference: float | None = None
    stale: int = 0

    def judge(self, loss: float, min_delta: float = 0.0) -> bool:
        """Take an evaluation in; True if it is the best so far."""
        if self.reference is None or loss < self.reference - min_delta:
            self.reference, self.stale = loss, 0
        else:
            self.stale += 1
        best = self.best_loss is None or loss < self.best_loss
        if best:
            self.best_loss, self.best_step = loss, self.step
        return best

    def is_stale(self, patience: int | None) -> bool:
        """Whether ``patience`` evaluations have gone by without improvement."""
        return patience is not None and self.stale >= patience
