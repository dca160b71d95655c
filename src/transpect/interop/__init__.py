"""Checkpoints that everyone's tools open: Hugging Face directories, read and written by tables, one file a family."""

from transpect.interop.checkpoint import (
    checkpoint_directory,
    family_of,
    load_config,
    load_generation,
    load_model,
    resolve,
    save_model,
    write_model,
)
from transpect.interop.directory import atomic_directory, settled

__all__ = [
    "atomic_directory",
    "checkpoint_directory",
    "family_of",
    "load_config",
    "load_generation",
    "load_model",
    "resolve",
    "save_model",
    "settled",
    "write_model",
]
