"""``best/`` and ``last/``: Hugging Face directories with model, tokenizer and generation settings."""

from __future__ import annotations

from pathlib import Path

from transpect.core.config import ModelConfig
from transpect.core.model import Transformer
from transpect.interop import atomic_directory, write_model
from transpect.interop.blank import blank
from transpect.train.job import Job


def write_checkpoint(folder: Path, job: Job) -> None:
    """Replace a checkpoint directory as a whole: a reader finds the old one or the new one, complete.

    Raises:
        CheckpointError: it can't be written.
    """
    with atomic_directory(folder) as staging:
        write_model(as_asked(job.model, job.config), staging, generation=job.generation)
        job.tokenizer.save(staging)


def as_asked(model: Transformer, config: ModelConfig) -> Transformer:
    """The model under the config that was asked for: packed documents are kept apart in training only, and a saved
    model is none the wiser. Its weights are the same storage."""
    if model.config == config:
        return model
    twin = blank(config)
    twin.load_state_dict(model.state_dict(), assign=True)
    return twin
