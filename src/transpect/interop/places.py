"""What a directory holds: a checkpoint, one ``.gguf`` file, several, or something else."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from transpect.base.errors import CheckpointError
from transpect.interop.shards import PICKLED, SAFETENSORS, has_weights

__all__ = [
    "ADAPTER",
    "ADAPTER_CONFIG",
    "CERTIFICATE",
    "TOKENIZER",
    "checkpoint_in",
    "found_in",
    "is_adapter",
    "is_checkpoint",
]

TOKENIZER: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)
"""The files of a tokenizer; patterns of `glob`."""

CERTIFICATE: Final = "certificate.json"
"""What `transpect verify` writes beside weights; that of ``x.gguf`` is called ``x.certificate.json``."""

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
"""What PEFT keeps an adapter in."""

_MARKS: Final = ("config.json", "modules.json", ADAPTER_CONFIG)


def is_checkpoint(folder: Path) -> bool:
    """Whether this is a Hugging Face directory, with weights or without."""
    return any((folder / mark).is_file() for mark in _MARKS)


def is_adapter(folder: Path) -> bool:
    """Whether this is the directory of an adapter."""
    return (folder / ADAPTER_CONFIG).is_file()


def checkpoint_in(folder: Path) -> Path | None:
    """The directory itself if it is a checkpoint, or the one ``.gguf`` file in it; None where it holds neither.

    Raises:
        CheckpointError: several ``.gguf`` files, so that one has to be named.
    """
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [entry for entry in entries if entry.suffix.lower() == ".gguf"]
    here = is_checkpoint(folder)
    if here and (not files or has_weights(folder, SAFETENSORS) or has_weights(folder, PICKLED)):
        return folder
    if len(files) > 1:
        raise CheckpointError(
            "several .gguf files in this directory",
            value=folder,
            remedy=f"Name one of them: {', '.join(file.name for file in files[:10])}.",
        )
    return files[0] if files else None


def found_in(folder: Path, limit: int = 8) -> str:
    """A sentence about what a directory holds instead."""
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in folder.iterdir())
    if not names:
        return "It is empty."
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"It holds {', '.join(names[:limit])}{more}."
