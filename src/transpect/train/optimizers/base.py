"""What every optimizer has in common."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from transpect.base.checks import above, not_negative, share
from transpect.base.codec import Variant
from transpect.train.optimizers.groups import NO_RULES, Grouping


class Optimizer(Variant):
    """An optimizer with its options.

    Attributes:
        lr: the peak of the schedule; None takes the schedule's default, or else ``default_rate``.
        even: whether each number of a weight moves by about the rate, however large its gradient and its matrix are.
    """

    default_rate: ClassVar[float]
    even: ClassVar[bool] = False
    lr: float | None

    def at(self, lr: float) -> Optimizer:
        """The same optimizer with a learning rate."""
        raise AssertionError("abstract")

    def build(self, model: nn.Module, grouping: Grouping = NO_RULES) -> torch.optim.Optimizer:
        """The torch optimizer over the trainable weights of ``model``; its rate is set before each update.

        Args:
            model: with weights in float32.
            grouping: which weights have another rate or decay.

        Raises:
            ConfigError: weights that are not float32, or a rule for weights that there are not.
        """
        raise AssertionError("abstract")


def check_rates(lr: float | None, weight_decay: float) -> None:
    """Refuse what no optimizer can use.

    Raises:
        ConfigError: a rate that is not above 0, or a negative decay.
    """
    above("lr", lr, 0)
    not_negative("weight_decay", weight_decay)


def check_betas(betas: tuple[float, float]) -> None:
    """Refuse shares of a running mean outside [0, 1).

    Raises:
        ConfigError: one is.
    """
    for number, beta in enumerate(betas):
        share(f"betas[{number}]", beta)
