"""Lion."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from transpect.train.optimizers.base import Optimizer, check_betas, check_rates
from transpect.train.optimizers.groups import NO_RULES, Grouping, Groups, decay_groups


@dataclass(frozen=True)
class Lion(Optimizer, kind="lion"):
    """w ← w − rate · (sign(β₁·m + (1 − β₁)·g) + weight_decay · w), then m ← β₂·m + (1 − β₂)·g (Chen et al. 2023,
    algorithm 2).

    One number of memory a weight. Since every weight moves by the whole rate, the rate is a third to a tenth of
    AdamW's, and the decay as many times larger (§5).

    Attributes:
        lr: peak learning rate.
        betas: β₁ and β₂.
        weight_decay: for matrices only; see `decaying`.
    """

    default_rate: ClassVar[float] = 1e-4
    even: ClassVar[bool] = True
    lr: float | None = None
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 1.0

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_betas(self.betas)

    def at(self, lr: float) -> Lion:
        return replace(self, lr=lr)

    def build(self, model: nn.Module, grouping: Grouping = NO_RULES) -> torch.optim.Optimizer:
        return _Lion(decay_groups(model, self.weight_decay, grouping), self.betas)


class _Lion(torch.optim.Optimizer):
    def __init__(self, groups: Groups, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": 0.0, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        assert closure is None
        for group in self.param_groups:
            (blend, keep), rate = group["betas"], group["lr"]
            for weight in (weight for weight in group["params"] if weight.grad is not None):
                state = self.state[weight]
                if not state:
                    state["exp_avg"] = torch.zeros_like(weight)
                mean = state["exp_avg"]
                direction = mean.lerp(weight.grad, 1.0 - blend).sign_()
                weight.mul_(1.0 - rate * group["weight_decay"]).sub_(direction, alpha=rate)
                mean.lerp_(weight.grad, 1.0 - keep)
