"""llama.cpp on the very same GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig
from transpect.interop.peers.base import Reading, Sample, installed

__all__ = ["PACKAGE", "lacks", "read"]

PACKAGE = "llama-cpp-python"
F32 = 0  # its number for the type of a cache


def lacks(place: Path, config: ModelConfig) -> str:
    """Why it can't open ``place``, as a row of the table of messages; empty where it can."""
    if place.suffix != ".gguf":
        return "verify.lacks.gguf"
    if config.kind != "decoder":
        return "verify.lacks.decoder"
    return "" if installed(PACKAGE) else "verify.lacks.package"


def read(place: Path, samples: Sequence[Sample], *, threads: int | None = None) -> list[Reading]:
    """Each sample by itself, with a cache in float32.

    Raises:
        CheckpointError: llama.cpp can't open the file.
    """
    from llama_cpp import Llama

    longest = max(len(sample.ids) for sample in samples)
    try:
        llama: Any = Llama(
            str(place),
            n_ctx=max(64, longest),
            logits_all=True,
            verbose=False,
            type_k=F32,
            type_v=F32,
            n_threads=threads,
        )
    except (ValueError, RuntimeError, OSError) as error:
        raise CheckpointError(f"llama.cpp can't open it: {error}", file=place) from error
    out = []
    try:
        for sample in samples:
            llama.reset()
            llama.eval(list(sample.ids))
            out.append({"logits": torch.from_numpy(llama.scores[: len(sample.ids)].copy())})
    finally:
        llama.close()
    return out
