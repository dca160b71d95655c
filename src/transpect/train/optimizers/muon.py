"""Muon for hidden matrices, beside AdamW for everything else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from transpect.base.checks import above, at_most, share
from transpect.train.optimizers.adamw import fused_adamw
from transpect.train.optimizers.base import Optimizer, check_betas, check_rates
from transpect.train.optimizers.groups import NO_RULES, Grouping, decay_groups, decaying


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
        check_betas(*self.betas)
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
            parts.append(
                torch.optim.Muon(
                    matrices,
                    lr=0.0,
                    momentum=self.momentum,
                    nesterov=self.nesterov,
                    ns_steps=self.steps,
                    adjust_lr_fn="match_rms_adamw",
                )
            )
        if others:
            parts.append(fused_adamw(others, self.betas, self.eps))
        return Together(parts)


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
