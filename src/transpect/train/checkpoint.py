"""``best/`` and ``last/``: Hugging Face directories with model, tokenizer and generation settings.

Where an adapter is trained they hold it in the place of the weights, and the name of the model that it is for.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

from torch import Tensor

from transpect.adapters import attach_empty
from transpect.core.config import ModelConfig
from transpect.core.model import Transformer
from transpect.interop import atomic_directory, write_model
from transpect.interop.blank import blank
from transpect.interop.checkpoint import write_config
from transpect.interop.labels import Labels
from transpect.interop.peft.writing import write_adapter
from transpect.train.job import Job


def write_checkpoint(folder: Path, job: Job) -> None:
    """Replace a checkpoint directory as a whole: a reader finds the old one or the new one, complete.

    Every process must call it; the leading one writes.

    Raises:
        CheckpointError: it can't be written.
    """
    weights = job.world.whole(job.model)
    if not job.world.leads:
        return
    with atomic_directory(folder) as staging:
        model, adapter = as_asked(job, weights), job.recipe.train.adapter
        labels = Labels(job.objective.classes).entries()
        if adapter is None:
            write_model(model, staging, generation=job.generation, extra_config=labels)
        else:
            write_config(job.config, staging, generation=job.generation, extra_config=labels)
            write_adapter(model, staging, adapter, _base(job))
        job.tokenizer.save(staging)
        for name, config in job.criterion.beside(job.config).items():
            (staging / name).mkdir()
            write_model(_within(job.model, name, config), staging / name, generation=job.generation)
            job.tokenizer.save(staging / name)


def as_asked(job: Job, weights: dict[str, Tensor]) -> Transformer:
    """The model under the config that was asked for: packed documents are kept apart in training only, and a saved
    model is none the wiser. Its weights are the same storage."""
    if job.model.config == job.config and job.world.size == 1 and not job.criterion.beside(job.config):
        return job.model
    twin = blank(job.config)
    if job.recipe.train.adapter is not None:
        attach_empty(twin, job.recipe.train.adapter)
    twin.load_state_dict({name: weights[name] for name in twin.state_dict()}, assign=True)
    return twin


def _within(model: Transformer, name: str, config: ModelConfig) -> Transformer:
    """A model that is trained within another one, with the parts that it borrows from that."""
    inner, twin = model.get_submodule(name), blank(config)
    weights: dict[str, Any] = {}
    for part in twin.state_dict():
        weights[part] = reduce(getattr, part.split("."), inner)
    twin.load_state_dict({key: weight.detach() for key, weight in weights.items()}, assign=True)
    return twin


def _base(job: Job) -> str:
    """The checkpoint that a run began with; where it is a path, one that holds from everywhere."""
    name = job.recipe.model.path
    assert name is not None
    return str(Path(name).resolve()) if Path(name).exists() else name
