"""Which weights an optimizer serves, at which share of the rate, and how much they decay."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from transpect.base.checks import above, not_negative
from transpect.base.errors import ConfigError
from transpect.train.precision import check_weights

Groups = list[dict[str, Any]]
SHARE = "share"
"""The key of a group that holds its share of the schedule's rate."""
LAYER = re.compile(r"towers\.(\w+)\.stack\.layers\.(\d+)\.")
EMBEDDING = re.compile(r"token\.|towers\.\w+\.(embeddings|stack\.(positions|other_positions))\.")


@dataclass(frozen=True)
class GroupRule:
    """What is different for some weights.

    Attributes:
        match: a pattern of their names, in which ``*`` is anything: ``head.*``, ``*.layers.0.*``, ``*.bias``.
        rate: their share of the schedule's rate.
        weight_decay: instead of the optimizer's; None is the optimizer's, which only matrices have.
    """

    match: str
    rate: float = 1.0
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        above("rate", self.rate, 0)
        not_negative("weight_decay", self.weight_decay)


@dataclass(frozen=True)
class Grouping:
    """Rates and decays by weight.

    Attributes:
        layer_decay: ξ: a layer's rate is ξ times that of the layer above it, in each tower by itself; the head and a
            tower's final norm have the whole rate, embeddings ξ times that of the first layer (Clark et al. 2020,
            "ELECTRA", appendix A; Bao et al. 2022, "BEiT").
        rules: where several match a weight, the last counts. Their rates are on top of ``layer_decay``.
        matrices: the share of the rate that matrices have (see `Initialization.share`); what they decay by in an update
            is as without.
    """

    layer_decay: float = 1.0
    rules: tuple[GroupRule, ...] = ()
    matrices: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.layer_decay <= 1.0:
            raise ConfigError(
                "layer_decay must be above 0 and at most 1",
                value=self.layer_decay,
                remedy="1 gives every layer the whole rate; 0.75 is usual for fine-tuning an encoder.",
            )


NO_RULES = Grouping()
"""The whole rate for every weight, and decay for matrices."""


def decaying(model: nn.Module) -> set[str]:
    """Names of the weights that decay: matrices that multiply activations.

    Not biases, not norms' gains, not lookup tables (token, segment, position and bucket embeddings), whose rows a rare
    token would find decayed although no gradient reached them. A tied table counts as a table, an untied output
    matrix as a matrix.
    """
    embeddings = (module for module in model.modules() if isinstance(module, nn.Embedding))
    tables = {id(weight) for module in embeddings for weight in module.parameters(recurse=False)}
    return {
        name
        for name, weight in model.named_parameters()
        if name.rpartition(".")[2] == "weight" and weight.ndim >= 2 and id(weight) not in tables
    }


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that an optimizer serves, by name.

    Raises:
        ConfigError: one is not float32, or there are none.
    """
    check_weights(model)
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights:
        raise ConfigError("a model to be trained needs at least one weight that requires a gradient")
    return weights


def decay_groups(
    model: nn.Module, weight_decay: float, grouping: Grouping = NO_RULES, names: Iterable[str] | None = None
) -> Groups:
    """Trainable weights in groups of equal rate and decay; those that do not decay have decay 0.

    Args:
        model: whose weights.
        weight_decay: of `decaying` weights where no rule says another.
        grouping: the rules.
        names: serve these alone; None is all.

    Raises:
        ConfigError: weights that are not float32, none that can be trained, or a rule that matches none.
    """
    weights = trainable(model)
    _check_rules(grouping, dict(model.named_parameters()))
    chosen, shares = decaying(model), layer_shares(model, grouping.layer_decay)
    served = weights.keys() if names is None else set(names)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    # those that decay first, so that the order of groups does not hang on names
    for name in sorted(weights, key=lambda name: name not in chosen):
        if name not in served:
            continue
        share, decay = shares[name], 0.0
        if name in chosen:
            share, decay = share * grouping.matrices, weight_decay / grouping.matrices
        rule = next((rule for rule in reversed(grouping.rules) if fnmatchcase(name, rule.match)), None)
        if rule is not None:
            share *= rule.rate
            decay = decay if rule.weight_decay is None else rule.weight_decay
        groups.setdefault((share, decay), []).append(weights[name])
    return [{"params": params, "weight_decay": decay, SHARE: share} for (share, decay), params in groups.items()]


def layer_shares(model: nn.Module, layer_decay: float) -> dict[str, float]:
    """The share of the rate that each weight has by its layer: ξ^(layers above it)."""
    names = [name for name, _ in model.named_parameters()]
    heights: dict[str, int] = {}
    for name in names:
        if found := LAYER.match(name):
            heights[found[1]] = max(heights.get(found[1], 0), int(found[2]) + 1)
    # a table that several towers read belongs to the last of them, as the head does
    last = list(heights.values())[-1] if heights else 0

    def above_it(name: str) -> int:
        if found := LAYER.match(name):
            return heights[found[1]] - int(found[2])
        if EMBEDDING.match(name):
            tower = name.split(".")[1] if name.startswith("towers.") else None
            return heights.get(tower, last) + 1 if tower else last + 1
        return 0

    return {name: layer_decay ** above_it(name) for name in names}


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Let the next update be made at ``rate``, of which each group takes its share."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(SHARE, 1.0)


def _check_rules(grouping: Grouping, weights: dict[str, nn.Parameter]) -> None:
    for rule in grouping.rules:
        if not any(fnmatchcase(name, rule.match) for name in weights):
            raise ConfigError(
                "a rule of train.groups must match the name of at least one weight",
                value=rule.match,
                remedy=f"Names are like {', '.join(list(weights)[:: max(1, len(weights) // 3)][:3])}.",
            )
