"""What a process holds before its model: libraries, and all code of torch that takes part in an update."""

from __future__ import annotations

from importlib import import_module

import torch

from transpect.core import Transformer, override, preset
from transpect.core.tags import Tags
from transpect.data.batch import Batch
from transpect.train.optimizers import AdamW
from transpect.train.planning.reading import resident
from transpect.train.precision import Precision
from transpect.train.recipe import Recipe
from transpect.train.recompute import recompute_activations
from transpect.train.updates import update

TINY = {"d_model": 64, "n_layers": 1, "n_heads": 2, "d_ff": 128, "vocab_size": 64, "context_length": 64}


def base_of(recipe: Recipe) -> int:
    """What the process of a run holds besides its own tensors: what this one does once it has made an update of a model
    that is next to nothing, for which all libraries and all code of torch that takes part have been loaded."""
    if recipe.logging.tensorboard:
        import_module("torch.utils.tensorboard")
    first_update(recipe.train.precision)
    return resident()


def first_update(precision: Precision) -> None:
    """Make an update of a model that is next to nothing."""
    config = override(preset("llama"), TINY.items())
    model = recompute_activations(Transformer(config, seed=0)).train()
    ids = torch.zeros(4, config.context_length, dtype=torch.int64)
    batch = Batch(ids, Tags.dense(*ids.shape), ids)
    update(model, AdamW().build(model), [batch], rate=1e-3, clip=1.0, precision=precision)
