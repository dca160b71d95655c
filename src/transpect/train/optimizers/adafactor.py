"""Adafactor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transpect.base.checks import above, not_negative, share
from transpect.base.errors import ConfigError
from transpect.train.optimizers.base import Optimizer, check_rates
from transpect.train.optimizers.groups import NO_RULES, Grouping, Groups, decay_groups


@dataclass(frozen=True)
class Adafactor(Optimizer, kind="adafactor"):
    """Adam whose running mean of squares, of a matrix, is kept as its row and column means (Shazeer & Stern 2018,
    algorithms 4 and 5).

    With β = 1 − t^−decay and G² + eps₁ averaged into rows R and columns C: U = G / √(R·Cᵀ / mean(R)), divided by
    max(1, RMS(U)/clip); then w ← w − α·U, where α = rate · max(eps₂, RMS(w)), or the rate itself.

    Attributes:
        lr: peak learning rate; by `scale_by_weight` it is relative to a matrix's own size.
        decay: how fast β nears 1.
        beta1: a running mean of updates, which costs a number a weight; null keeps none.
        eps: eps₁ and eps₂.
        clip: the largest RMS of U.
        scale_by_weight: whether a weight moves in proportion to its size.
        weight_decay: w ← w − α · weight_decay · w, for matrices only; see `decaying`.
    """

    default_rate: ClassVar[float] = 1e-2
    lr: float | None = None
    decay: float = 0.8
    beta1: float | None = None
    eps: tuple[float, float] = (1e-30, 1e-3)
    clip: float = 1.0
    scale_by_weight: bool = True
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        if self.beta1 is not None:
            share("beta1", self.beta1)
        above("decay", self.decay, 0)
        above("clip", self.clip, 0)
        above("eps[0]", self.eps[0], 0)
        not_negative("eps[1]", self.eps[1])
        if self.decay > 1.0:
            raise ConfigError("decay must be at most 1", value=self.decay, remedy="The paper's is 0.8.")

    def at(self, lr: float) -> Adafactor:
        return replace(self, lr=lr)

    def build(self, model: nn.Module, grouping: Grouping = NO_RULES) -> torch.optim.Optimizer:
        return _Adafactor(decay_groups(model, self.weight_decay, grouping), self)


class _Adafactor(torch.optim.Optimizer):
    def __init__(self, groups: Groups, options: Adafactor) -> None:
        super().__init__(groups, {"lr": 0.0})
        self.options = options

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        assert closure is None
        for group in self.param_groups:
            for weight in (weight for weight in group["params"] if weight.grad is not None):
                self._move(weight, weight.grad, group["lr"], group["weight_decay"])

    def _move(self, weight: Tensor, gradient: Tensor, rate: float, weight_decay: float) -> None:
        options, state = self.options, self.state[weight]
        if not state:
            self._begin(state, weight)
        state["step"] += 1
        alpha: Any = rate * _rms(weight).clamp(min=options.eps[1]) if options.scale_by_weight else rate
        moved = gradient * self._inverse_root(state, gradient)
        moved = moved / (_rms(moved) / options.clip).clamp(min=1.0) * alpha
        if options.beta1 is not None:
            moved = state["exp_avg"].lerp_(moved, 1.0 - options.beta1)
        if weight_decay:
            weight.mul_(1.0 - alpha * weight_decay)
        weight.sub_(moved)

    def _begin(self, state: dict[str, Tensor], weight: Tensor) -> None:
        state["step"] = torch.zeros((), dtype=torch.float32)
        if weight.ndim >= 2:
            state["row"] = weight.new_zeros(weight.shape[:-1])
            state["column"] = weight.new_zeros((*weight.shape[:-2], weight.shape[-1]))
        else:
            state["square"] = torch.zeros_like(weight)
        if self.options.beta1 is not None:
            state["exp_avg"] = torch.zeros_like(weight)

    def _inverse_root(self, state: dict[str, Tensor], gradient: Tensor) -> Tensor:
        """1/√v, or of a matrix √mean(R) / (√R · √C)."""
        new = float(state["step"]) ** -self.options.decay  # 1 − β
        square = gradient.square().add_(self.options.eps[0])
        if gradient.ndim < 2:
            return state["square"].lerp_(square, new).rsqrt()
        # not in place: of a weight that processes share out, a mean lies otherwise than the weight
        row = state["row"] = state["row"].lerp(square.mean(-1), new)  # [.., R]
        column = state["column"] = state["column"].lerp(square.mean(-2), new)  # [.., C]
        of_row = (row / row.mean(-1, keepdim=True)).rsqrt()
        return of_row[..., None] * column.rsqrt()[..., None, :]


def _rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()
