"""The factor on the loss that keeps float16's gradients from vanishing.

float16 has nothing between 0 and 6·10⁻⁸. The loss is therefore multiplied before the backward pass, by as much as goes
without overflow, and the gradients are divided again before anything reads them: first all micro-batches, then
unscaling, the norm, clipping, the update. Where the norm is not finite nothing is updated (no weight, no step of the
schedule, no average) and the factor is halved.

Source: Micikevicius et al. 2018 ("Mixed precision training"), §3.2; the rule is that of `torch.amp.GradScaler`, which
looks at every gradient once more where this looks at their norm, which clipping and logging need anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.train.errors import TrainingError

GROWTH_INTERVAL = 2000
"""After so many updates in a row the factor is doubled."""
SMALLEST = 2.0**-10
"""With a factor below that the fault is not one of scale."""


@dataclass
class LossScale:
    """Attributes:
    factor: of the loss, a power of 2.
    streak: updates made since it last changed.
    skipped: updates that were not made.
    """

    factor: float = 2.0**16
    streak: int = 0
    skipped: int = 0

    def over(self, count: int) -> float:
        """About what the backward pass of a mean over so many terms begins with, a power of 2."""
        return 2.0 ** math.floor(math.log2(self.factor / max(count, 1)))

    def undo(self, gradients: Sequence[Tensor]) -> None:
        """Divide gradients by the factor."""
        torch._foreach_mul_(list(gradients), 1.0 / self.factor)

    def allows(self, norm: Tensor) -> bool:
        """Whether an update with a gradient of this norm may be made; the factor follows.

        Raises:
            TrainingError: not finite even where the loss is made a thousand times smaller.
        """
        if math.isfinite(float(norm)):
            self.streak += 1
            if self.streak == GROWTH_INTERVAL:
                self.factor, self.streak = self.factor * 2.0, 0
            return True
        self.factor, self.streak, self.skipped = self.factor / 2.0, 0, self.skipped + 1
        if self.factor < SMALLEST:
            raise TrainingError(
                "float16's gradients must be finite at some scale of the loss, and are at none",
                value=f"loss × {self.factor:g}",
                remedy="Set train.precision to bf16, which has the range of fp32, or lower train.optimizer.lr.",
            )
        return False


class NoScale:
    """For arithmetic with the range of float32: the loss as it is, and every update is made."""

    factor = 1.0

    def over(self, count: int) -> float:
        """Nothing is scaled."""
        return 1.0

    def undo(self, gradients: Sequence[Tensor]) -> None:
        """Nothing."""

    def allows(self, norm: Tensor) -> bool:
        """Always."""
        return True


NO_SCALE = NoScale()
