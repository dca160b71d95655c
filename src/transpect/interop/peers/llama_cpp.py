"""llama.cpp on the very same GGUF file."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    with _quiet():
        return _read(place, samples, threads)


def _read(place: Path, samples: Sequence[Sample], threads: int | None) -> list[Reading]:
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
            n_threads_batch=threads,  # else as many as the machine has cores, which wait for each other busily
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Its remarks about itself are not for the person; `verbose=False` lets some through, by counting levels wrong."""
    import llama_cpp
    from llama_cpp._logger import llama_log_callback

    silent = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    try:
        yield
    finally:
        llama_cpp.llama_log_set(llama_log_callback, ctypes.c_void_p(0))
