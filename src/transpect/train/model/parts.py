"""Which parts of a model a run trains: all, all but frozen ones, or an adapter beside it."""

from __future__ import annotations

from transpect.adapters import attach, train_only
from transpect.base.errors import ConfigError
from transpect.core import Transformer
from transpect.interop.peft.writing import check_adapter
from transpect.train.model.freezing import freeze
from transpect.train.recipe import Recipe


def train_parts(model: Transformer, recipe: Recipe) -> None:
    """Put the recipe's adapter beside a model's layers, and let only what is trained need gradients, in place.

    Raises:
        CheckpointError: layers whose adapters couldn't be saved.
        ConfigError: a pattern that fits nothing, nothing left to be trained, or an adapter of drawn weights.
    """
    adapter = recipe.train.adapter
    if adapter is None:
        freeze(model, recipe.train.freeze)
        return
    if recipe.model.path is None:
        raise ConfigError(
            "an adapter is trained beside the weights of a checkpoint",
            value=f"train.adapter {adapter.kind}",
            remedy="Name it as model.path.",
        )
    attach(model, adapter, recipe.train.seed)
    train_only(model, adapter)
    check_adapter(model)
