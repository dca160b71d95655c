"""Optimizers, and which weights decay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from transpect.base.checks import above
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.train.precision import check_weights

Groups = list[dict[str, Any]]
Tensors = dict[str, torch.Tensor]


class Optimizer(Variant):
    """An optimizer with its options. ``lr`` is the peak of the schedule; None takes the schedule's own default."""

    lr: float | None

    def at(self, lr: float) -> Optimizer:
        """The same optimizer with a learning rate."""
        raise AssertionError("abstract")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """The torch optimizer over the trainable weights of ``model``; its rate is set before each update.

        Raises:
            ConfigError: weights that are not float32.
        """
        raise AssertionError("abstract")


@dataclass(frozen=True)
class AdamW(Optimizer, kind="adamw"):
    """m̂/(√v̂ + eps) plus decoupled weight decay, both times the rate (Loshchilov & Hutter 2019, algorithm 2).

    Attributes:
        lr: peak learning rate.
        betas: of the running means of the gradient and of its square.
        eps: added to √v̂.
        weight_decay: w ← w − rate · weight_decay · w, for matrices only; see `decaying`.
    """

    lr: float | None = None
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1

    def __post_init__(self) -> None:
        above("lr", self.lr, 0)
        _not_negative("weight_decay", self.weight_decay)
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ConfigError("betas must be at least 0 and below 1", value=self.betas)
        if self.eps <= 0.0:
            raise ConfigError("eps must be above 0", value=self.eps)

    def at(self, lr: float) -> AdamW:
        return replace(self, lr=lr)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        groups = decay_groups(model, self.weight_decay)
        _lay_out([weight for group in groups for weight in group["params"]])
        # one pass over memory instead of a dozen: four times as fast as `foreach` on a CPU, and right on a GPU too
        fused = all(weight.device.type in ("cpu", "cuda") for group in groups for weight in group["params"])
        return torch.optim.AdamW(groups, lr=0.0, betas=self.betas, eps=self.eps, fused=fused)


@dataclass(frozen=True)
class Sgd(Optimizer, kind="sgd"):
    """w ← w − rate · (momentum-averaged gradient + weight_decay · w).

    Attributes:
        lr: peak learning rate.
        momentum: share of the last direction that is kept.
        weight_decay: for matrices only; see `decaying`.
    """

    lr: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        above("lr", self.lr, 0)
        _not_negative("weight_decay", self.weight_decay)
        if not 0.0 <= self.momentum < 1.0:
            raise ConfigError("momentum must be at least 0 and below 1", value=self.momentum)

    def at(self, lr: float) -> Sgd:
        return replace(self, lr=lr)

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(decay_groups(model, self.weight_decay), lr=0.0, momentum=self.momentum)


def decaying(model: nn.Module) -> set[str]:
    """Names of the weights that decay: matrices that multiply activations.

    Not biases, not norms' gains, not lookup tables (token, segment, position and bucket embeddings), whose rows a rare
    token would find decayed although no gradient reached them. A tied table counts as a table, an untied output
    matrix as a matrix.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return {
        name
        for name, weight in model.named_parameters()
        if name.rpartition(".")[2] == "weight" and weight.ndim >= 2 and id(weight) not in tables
    }


def decay_groups(model: nn.Module, weight_decay: float) -> Groups:
    """Two groups of trainable weights: those that decay, and the others with decay 0. An empty group is left out.

    Raises:
        ConfigError: weights that are not float32, or none that can be trained.
    """
    check_weights(model)
    chosen = decaying(model)
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights:
        raise ConfigError("a model to be trained needs at least one weight that requires a gradient")
    groups: Groups = [
        {"params": [weight for name, weight in weights.items() if name in chosen], "weight_decay": weight_decay},
        {"params": [weight for name, weight in weights.items() if name not in chosen], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Let the next update be made at ``rate``."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: Iterable[tuple[str, nn.Parameter]]) -> Tensors:
    """The optimizer's memory as flat tensors: ``"exp_avg/<name of the weight>"``; the rate is not among it."""
    return {
        f"{key}/{name}": value
        for name, weight in names
        for key, value in optimizer.state.get(weight, {}).items()
        if isinstance(value, torch.Tensor)
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Iterable[tuple[str, nn.Parameter]], tensors: Tensors
) -> None:
    """Put back what `optimizer_tensors` gave, bit for bit, on the device where it was."""
    weights = dict(names)
    for full, value in tensors.items():
        key, _, name = full.partition("/")
        weight = weights[name]
        # a step counter lives on the CPU unless the optimizer is fused on a GPU; the moments live with their weight
        on_weight = value.shape == weight.shape or optimizer.defaults.get("fused", False)
        optimizer.state[weight][key] = value.to(weight.device if on_weight else "cpu")


def _lay_out(weights: Iterable[nn.Parameter]) -> None:
    """Lay each weight out row by row, in memory of its own, and let go of the file that it may be mapped from.

    torch's fused AdamW on a CPU goes through weight, gradient and moments by memory, whatever their strides. A matrix
    that is a part of a larger one, as queries are of GPT-2's stored QKV, would take up the wrong gradients, and write
    into its neighbours.
    """
    for weight in weights:
        weight.data = weight.data.clone(memory_format=torch.contiguous_format)


def _not_negative(name: str, value: float) -> None:
    if value < 0.0:
        raise ConfigError(f"{name} must not be negative", value=value)
