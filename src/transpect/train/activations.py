"""What becomes of activations between the forward and the backward pass: kept, computed again, or sent away.

Whatever is chosen, gradients are the same numbers: what is computed again is computed by the same operations from the
same arguments, with the generators where they stood.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from transpect.base.checks import at_least
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.core.attention import Pass, SelfAttention
from transpect.core.bias import DistanceBias
from transpect.core.blocks import Layer, Step
from transpect.core.kernels.flex import Flex
from transpect.core.kernels.naive import Naive
from transpect.core.kernels.sdpa import Sdpa
from transpect.core.model import Transformer
from transpect.data.objectives import Objective
from transpect.train.recompute import recompute_activations

SMALLEST = 2**18
"""Tensors of fewer bytes stay where they are: to send them would take longer than it saves."""


class Activations(Variant):
    """What becomes of them."""

    def check(self, objective: Objective, device: torch.device) -> None:
        """Whether it can be done.

        Raises:
            ConfigError: not with this objective, or not on this device.
        """

    @abstractmethod
    def apply(self, model: Transformer) -> Transformer:
        """Exchange modules within ``model`` for others over the same weights, with the same names and results."""


@dataclass(frozen=True)
class Keep(Activations, kind="keep"):
    """All are kept; but those that cost next to nothing, on a CPU (`transpect.train.recompute`)."""

    def apply(self, model: Transformer) -> Transformer:
        return recompute_activations(model)


@dataclass(frozen=True)
class Checkpoint(Activations, kind="checkpoint"):
    """Only what goes into a part is kept, and the part is computed a second time in the backward pass (Chen et al.
    2016, "Training deep nets with sublinear memory cost").

    Of N layers then one at a time has activations, beside N inputs; the price is a second forward pass.

    Attributes:
        part: what is computed again: each ``layer``; each ``step`` of a layer by itself, which leaves half as much to
            live at a time and keeps twice as many inputs; or ``attention`` alone.
        every: in every n-th layer, from the first; 2 is about half the memory at half the price.
    """

    part: Literal["layer", "step", "attention"] = "layer"
    every: int = 1

    def __post_init__(self) -> None:
        at_least("every", self.every, 1)

    def check(self, objective: Objective, device: torch.device) -> None:
        if objective.remembers is not None:
            raise ConfigError(
                "activations can't be computed again where a memory goes on from batch to batch: it would take a batch "
                "up twice",
                value=f"activations: {self.kind}, objective: {objective.kind}",
                remedy="Set train.activations to keep, or choose another objective.",
            )

    def apply(self, model: Transformer) -> Transformer:
        model = recompute_activations(model)
        for tower in model.towers.values():
            layers = tower.get_submodule("stack.layers")
            assert isinstance(layers, nn.ModuleList)
            for index in range(0, len(layers), self.every):
                layers[index] = _checkpointed(layers[index], self.part)
        return model


@dataclass(frozen=True)
class Offload(Activations, kind="offload"):
    """They wait for the backward pass in the memory of the CPU, not of the GPU.

    Attributes:
        every: those of every n-th layer, from the first.
        pin: in pinned memory, to and from which copies are quicker.
    """

    every: int = 1
    pin: bool = True

    def __post_init__(self) -> None:
        at_least("every", self.every, 1)

    def check(self, objective: Objective, device: torch.device) -> None:
        if device.type == "cpu":
            raise ConfigError(
                "activations can be sent to the CPU's memory from another device only",
                value=f"device {device}",
                remedy="Set train.activations to {kind: checkpoint}, which saves memory on a CPU too.",
            )

    def apply(self, model: Transformer) -> Transformer:
        weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        for tower in model.towers.values():
            layers = tower.get_submodule("stack.layers")
            assert isinstance(layers, nn.ModuleList)
            for index in range(0, len(layers), self.every):
                layer = layers[index]
                assert isinstance(layer, Layer)
                layers[index] = OffloadedLayer(layer, weights, pin=self.pin)
        return model


def again(function: Callable[[Tensor, Pass], Tensor], module: nn.Module, x: Tensor, run: Pass) -> Tensor:
    """function(x, run), which keeps ``x`` alone and is called a second time in the backward pass."""
    for attention in module.modules():
        if isinstance(attention, SelfAttention):
            _settle(attention, run)
    out: Tensor = checkpoint(function, x, run, use_reentrant=False)
    return out


def _settle(attention: SelfAttention, run: Pass) -> None:
    """Have a learned bias made that all layers share, as their kernel will: what is made within a part that is computed
    again belongs to that part alone."""
    bias, view, kernel = run.geometry.bias, run.self_view, attention.kernel
    if bias is None or not any(table.requires_grad for table in bias.inputs):
        return
    if isinstance(kernel, Sdpa):
        if attention.heads * view.query.shape[1] * view.key.shape[1] <= kernel.largest_bias:
            view.biased(bias.whole)
    elif isinstance(kernel, Naive):
        assert bias.whole is not None
    elif isinstance(kernel, Flex):
        assert isinstance(bias, DistanceBias) and bias.table is not None


class CheckpointedLayer(Layer):
    def __init__(self, layer: Layer) -> None:
        nn.Module.__init__(self)
        self.steps = layer.steps

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        return again(super().forward, self, x, run)


class CheckpointedStep(Step):
    def __init__(self, step: Step) -> None:
        nn.Module.__init__(self)
        self.enter, self.before, self.branches, self.after = step.enter, step.before, step.branches, step.after

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        return again(super().forward, self, x, run)


class PlainBranch(nn.Module):
    """dropout(after_branch(body(before(x)))), without hooks of its own, which would hide what it keeps from ours."""

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.before, self.body = branch.get_submodule("before"), branch.get_submodule("body")
        self.after_branch, self.dropout = branch.get_submodule("after_branch"), branch.get_submodule("dropout")

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        out: Tensor = self.dropout(self.after_branch(self.body(self.before(x), run)))
        return out


class CheckpointedBranch(PlainBranch):
    def forward(self, x: Tensor, run: Pass) -> Tensor:
        return again(super().forward, self, x, run)


class OffloadedLayer(Layer):
    """A layer whose large activations are copied away as they are kept, and back as they are needed; weights stay."""

    def __init__(self, layer: Layer, weights: set[int], *, pin: bool) -> None:
        nn.Module.__init__(self)
        self.steps = layer.steps
        self._weights, self._pin = weights, pin

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        with saved_tensors_hooks(self._send, _fetch):
            return super().forward(x, run)

    def _send(self, kept: Tensor) -> tuple[torch.device, Tensor] | Tensor:
        storage = kept.untyped_storage()
        if storage.data_ptr() in self._weights or kept.numel() * kept.element_size() < SMALLEST:
            return kept
        away = torch.empty(kept.shape, dtype=kept.dtype, layout=kept.layout, pin_memory=self._pin)
        away.copy_(kept, non_blocking=self._pin)
        return kept.device, away


def _fetch(kept: tuple[torch.device, Tensor] | Tensor) -> Tensor:
    if isinstance(kept, Tensor):
        return kept
    device, away = kept
    return away.to(device, non_blocking=away.is_pinned())


def _checkpointed(layer: nn.Module, part: str) -> Layer:
    assert isinstance(layer, Layer)
    if part == "layer":
        for step in layer.steps.values():
            _bare(step)
        return CheckpointedLayer(layer)
    for name, step in layer.steps.items():
        if part == "step":
            layer.steps[name] = CheckpointedStep(_bare(step))
        else:
            branches = _branches(step)
            for branch in ("self", "cross"):
                if branch in branches:
                    branches[branch] = CheckpointedBranch(branches[branch])
    return layer


def _bare(step: nn.Module) -> Step:
    assert isinstance(step, Step)
    branches = _branches(step)
    for name, branch in branches.items():
        branches[name] = PlainBranch(branch)
    return step


def _branches(step: nn.Module) -> nn.ModuleDict:
    branches = step.get_submodule("branches")
    assert isinstance(branches, nn.ModuleDict)
    return branches
