"""Layers that torch compiles for training: `train.compile`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core.attention import Pass
from transpect.core.blocks import Layer
from transpect.core.model import Transformer
from transpect.data.objectives import Objective

VARIANTS = 64
"""So many programs for one layer: by shapes, padding and precision."""


def check_compile(objective: Objective) -> None:
    """Refuse what a compiled layer would not see.

    Raises:
        ConfigError: a memory, which layers write to by their number.
    """
    if objective.remembers is not None:
        raise ConfigError(
            "train.compile makes one program for all layers, and so can't serve a memory, which tells them apart",
            value=f"objective: {objective.kind}",
            remedy="Set train.compile to false, or choose another objective.",
        )


def compile_layers(model: Transformer) -> Transformer:
    """Exchange the layers of ``model`` for compiled ones over the same weights, with the same names.

    One program serves all layers of a kind, so that a deep model compiles as fast as a flat one. A second length of
    rows makes it compile once more, for any length. What is not training (evaluation, samples) goes the plain way.
    """
    for tower in model.towers.values():
        layers = tower.get_submodule("stack.layers")
        assert isinstance(layers, nn.ModuleList)
        for index, layer in enumerate(layers):
            assert isinstance(layer, Layer)
            layers[index] = CompiledLayer(layer)
    return model


class CompiledLayer(Layer):
    def __init__(self, layer: Layer) -> None:
        nn.Module.__init__(self)
        self.steps = layer.steps
        self._program: Callable[[Tensor, Pass], Tensor] = torch.compile(super().forward, fullgraph=True)

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        if not self.training:
            return super().forward(x, run)
        try:
            with torch._dynamo.config.patch(recompile_limit=VARIANTS):
                return self._program(x, replace(run, layer=0))
        except torch._dynamo.exc.TorchDynamoException as error:
            why = str(error).strip().splitlines()
            raise ConfigError(
                f"train.compile needs layers that torch can compile, and these it can't: {why[0] if why else error!r}",
                value=", ".join(self.steps),
                remedy="Set train.compile to false; a C++ compiler must be installed where the device is a CPU.",
            ) from error
