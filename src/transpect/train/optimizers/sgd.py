"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from transpect.base.checks import share
from transpect.base.errors import ConfigError
from transpect.train.optimizers.base import Optimizer, check_rates
from transpect.train.optimizers.groups import NO_RULES, Grouping, decay_groups


@dataclass(frozen=True)
class Sgd(Optimizer, kind="sgd"):
    """w ← w − rate · d, where d is the direction b ← momentum · b + g, and g the gradient + weight_decay · w.

    Attributes:
        lr: peak learning rate.
        momentum: share of the last direction that is kept.
        nesterov: go by g + momentum · b, the direction after the next step (Sutskever et al. 2013, §2).
        weight_decay: for matrices only; see `decaying`.
    """

    default_rate: ClassVar[float] = 1e-2
    lr: float | None = None
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        share("momentum", self.momentum)
        if self.nesterov and not self.momentum:
            raise ConfigError(
                "nesterov looks ahead along a momentum, so momentum must be above 0",
                value=self.momentum,
                remedy="Set momentum, e.g. to 0.9.",
            )

    def at(self, lr: float) -> Sgd:
        return replace(self, lr=lr)

    def build(self, model: nn.Module, grouping: Grouping = NO_RULES) -> torch.optim.Optimizer:
        groups = decay_groups(model, self.weight_decay, grouping)
        return torch.optim.SGD(groups, lr=0.0, momentum=self.momentum, nesterov=self.nesterov)
