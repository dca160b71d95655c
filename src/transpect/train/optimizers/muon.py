"""Muon for hidden matrices, beside AdamW for everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transpect.base.checks import above, at_most, share
from transpect.train.optimizers.adamw import fused_adamw
from transpect.train.optimizers.base import Optimizer, check_betas, check_rates
from transpect.train.optimizers.groups import NO_RULES, Grouping, Groups, decay_groups, decaying


@dataclass(frozen=True)
class Muon(Optimizer, kind="muon"):
    """w ← w − rate · (0.2 · √max(rows, columns) · O + weight_decay · w), where O is the orthogonal matrix nearest to
    the momentum, by Newton–Schulz steps in bfloat16 (Jordan et al. 2024, "Muon"; the factor is Liu et al. 2025, "Muon
    is scalable for LLM training", §2.2).

    By that factor a matrix moves as far as under AdamW, so one rate serves all: Muon for `hidden_matrices`, AdamW for
    tables, the head, norms and biases.

    Attributes:
        lr: peak learning rate, of both.
        momentum: share of the last momentum that is kept.
        nesterov: go by the momentum after the next step.
        steps: of Newton–Schulz.
        betas: of AdamW.
        eps: of AdamW.
        weight_decay: for matrices only; see `decaying`.
    """

    default_rate: ClassVar[float] = 1e-3
    lr: float | None = None
    momentum: float = 0.95
    nesterov: bool = True
    steps: int = 5
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        share("momentum", self.momentum)
        above("steps", self.steps, 0)
        at_most("steps", self.steps, 99)
        check_betas(self.betas)
        above("eps", self.eps, 0)

    def at(self, lr: float) -> Muon:
        return replace(self, lr=lr)

    def build(self, model: nn.Module, grouping: Grouping = NO_RULES) -> torch.optim.Optimizer:
        hidden = hidden_matrices(model)
        matrices = decay_groups(model, self.weight_decay, grouping, hidden)
        rest = {name for name, _ in model.named_parameters()} - hidden
        others = decay_groups(model, self.weight_decay, grouping, rest)
        parts: list[torch.optim.Optimizer] = []
        if matrices:
            parts.append(_Muon(matrices, self))
        if others:
            parts.append(fused_adamw(others, self.betas, self.eps))
        return Together(parts)


class _Muon(torch.optim.Optimizer):
    """`torch.optim.Muon`, with whole matrices also where processes share them out."""

    def __init__(self, groups: Groups, options: Muon) -> None:
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
            state["momentum_buffer"] = torch.zeros_like(gradient)
        momentum = state["momentum_buffer"].lerp_(gradient, 1.0 - options.momentum)
        direction = gradient.lerp(momentum, options.momentum) if options.nesterov else momentum
        weight.mul_(1.0 - rate * weight_decay)
        weight.add_(_nearest(direction, options.steps), alpha=-rate * 0.2 * math.sqrt(max(weight.shape)))


def _nearest(matrix: Tensor, steps: int) -> Tensor:
    """`nearest_orthogonal`; of a matrix that processes share out each computes the whole, since products of its parts
    would be rounded to bfloat16 in other places."""
    if not hasattr(matrix, "full_tensor"):
        return nearest_orthogonal(matrix, steps)
    from transpect.train.parallel.sharding import whole_to_parts

    return whole_to_parts(matrix, lambda whole: nearest_orthogonal(whole, steps))


COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of X, XXᵀX and (XXᵀ)²X in a step: they bring small singular values near 1 soonest (Jordan et al. 2024)."""


def nearest_orthogonal(matrix: Tensor, steps: int) -> Tensor:
    """About UVᵀ of a matrix UΣVᵀ, in bfloat16: X ← aX + bXXᵀX + c(XXᵀ)²X, so many times, from X = matrix / ‖matrix‖."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16().T if tall else matrix.bfloat16()
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def hidden_matrices(model: nn.Module) -> set[str]:
    """Names of the matrices that turn hidden features into hidden features: those that decay, without the head's."""
    weights = dict(model.named_parameters())
    return {name for name in decaying(model) if weights[name].ndim == 2 and not name.startswith("head.")}


class Together(torch.optim.Optimizer):
    """Several optimizers of different weights as one: their groups in a row, and one memory.

    Args:
        parts: at least one.
    """

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {"lr": 0.0})
        self.parts, self.sizes = parts, [len(part.param_groups) for part in parts]
        self._share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part, size in zip(self.parts, self.sizes, strict=True):
            part.param_groups = [next(groups) for _ in range(size)]
            part.state = self.state

    def step(self, closure: Any = None) -> Any:
        assert closure is None
        for part in self.parts:
            part.step()
