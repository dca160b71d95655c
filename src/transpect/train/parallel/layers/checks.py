"""Which recipes processes can share the layers of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transpect.base.errors import ConfigError
from transpect.core.kernels.performer import Performer

if TYPE_CHECKING:
    from transpect.train.recipe import Recipe

LOSSES = ("cross_entropy", "classification", "token_classification")
"""Those that read a micro-batch in one pass of one model."""


def check_layers(recipe: Recipe, stages: int) -> None:
    """Refuse what can't be cut into ``stages`` stages.

    Raises:
        ConfigError: it can't.
    """
    config, spec = recipe.model.config, recipe.train
    if len(config.towers) > 1:
        raise _refused("cuts one tower, and every layer of a decoder looks at its encoder", config.kind, stages)
    stack = config.last
    layers = stack.n_layers if stack.n_unique is None else stack.n_unique
    if layers < stages:
        raise _refused("needs at least a layer for each stage", f"{layers} layers of their own", stages)
    if spec.loss is not None and spec.loss.kind not in LOSSES:
        raise _refused(f"takes a loss of one pass: {', '.join(LOSSES)}", f"loss {spec.loss.kind}", stages)
    if any(isinstance(kind.attention.kernel, Performer) and kind.attention.kernel.redraw for kind in stack.kinds):
        raise _refused("has no layer that draws features anew", "kernel performer with redraw", stages)
    by_names = {
        "train.adapter": spec.adapter,
        "train.compile": spec.compile,
        "train.freeze": spec.freeze,
        "train.groups": spec.groups,
        "train.layer_decay": spec.layer_decay != 1.0,
    }
    asked = [name for name, value in by_names.items() if value]
    if asked:
        raise _refused(f"gives a process some of the weights, and {asked[0]} looks at all of them", asked[0], stages)


def _refused(why: str, value: object, stages: int) -> ConfigError:
    return ConfigError(
        f"parallel.pipeline {why}",
        value=f"{value}, {stages} stages",
        remedy="Leave it out, or share the model out by parallel.tensor or parallel.data: fsdp.",
    )
