"""Checkpoints that everyone's tools open: Hugging Face directories, read and written by tables, one file a family."""

from transpect.interop.checkpoint import (
    checkpoint_directory,
    family_of,
    load_config,
    load_generation,
    load_model,
    save_model,
    write_model,
)
from transpect.interop.directory import atomic_directory, settled
from transpect.interop.heads import head_of_kind
from transpect.interop.names import locate
from transpect.interop.sentence import body_of, read_max_length, write_max_length

resolve = locate
"""What `locate` was called first."""

__all__ = [
    "atomic_directory",
    "body_of",
    "checkpoint_directory",
    "family_of",
    "head_of_kind",
    "load_config",
    "load_generation",
    "load_model",
    "locate",
    "read_max_length",
    "resolve",
    "save_model",
    "settled",
    "write_max_length",
    "write_model",
]
