"""``best/`` and ``last/``: Hugging Face directories with model, tokenizer and generation settings."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from transpect.core.model import Transformer
from transpect.interop import atomic_directory, write_model
from transpect.interop.blank import blank
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
        write_model(as_asked(job, weights), staging, generation=job.generation)
        job.tokenizer.save(staging)


def as_asked(job: Job, weights: dict[str, Tensor]) -> Transformer:
    """The model under the config that was asked for: packed documents are kept apart in training only, and a saved
    model is none the wiser. Its weights are the same storage."""
    if job.model.config == job.config and job.world.size == 1:
        return job.model
    twin = blank(job.config)
    twin.load_state_dict(weights, assign=True)
    return twin
