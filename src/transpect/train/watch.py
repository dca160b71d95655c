"""Keeps watch that losses and gradients are numbers, without making a GPU wait at each step."""

from __future__ import annotations

import math

import torch

from transpect.train.errors import TrainingError
from transpect.train.updates import Update


class Watch:
    """Looks at each update on a CPU; on other devices it collects them until `look` is called.

    Args:
        device: where the updates' numbers are.
    """

    def __init__(self, device: torch.device) -> None:
        self._eager = device.type == "cpu"
        self._unseen: list[tuple[int, Update]] = []

    def note(self, step: int, done: Update) -> None:
        """An update has been made.

        Raises:
            TrainingError: as `look`.
        """
        self._unseen.append((step, done))
        if self._eager:
            self.look()

    def look(self) -> None:
        """Check every update since the last look.

        Raises:
            TrainingError: a loss or a gradient that is not finite, with its step.
        """
        for step, done in self._unseen:
            for name, value in (("the loss", float(done.loss)), ("the gradient's norm", float(done.grad_norm))):
                if not math.isfinite(value):
                    raise TrainingError(
                        f"{name} must be finite, and at step {step} it is not",
                        value=value,
                        remedy="Training has stopped and this step is not saved. Lower train.optimizer.lr, warm up "
                        "longer, or set train.clip; then go on from the last saved state with --resume auto.",
                    )
        self._unseen = []
