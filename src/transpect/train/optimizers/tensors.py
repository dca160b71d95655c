"""What an optimizer remembers, as flat tensors."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

Tensors = dict[str, torch.Tensor]
COUNTER = "step"


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
    fused = {weight for group in optimizer.param_groups if group.get("fused") for weight in group["params"]}
    for full, value in tensors.items():
        key, _, name = full.partition("/")
        weight = weights[name]
        # a counter lives on the CPU unless the optimizer is fused on a GPU; everything else lives with its weight
        on_weight = key != COUNTER or weight in fused
        optimizer.state[weight][key] = value.to(weight.device if on_weight else "cpu")
