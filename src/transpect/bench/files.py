"""Files of one model for everyone: a Hugging Face directory, and GGUF in each of llama.cpp's formats.

They are made from the same weights, once, and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from transpect.bench.harness import Options
from transpect.bench.peers import home, interpreter
from transpect.bench.worker import Worker, script_of
from transpect.interop import locate
from transpect.interop.convert import convert

__all__ = ["directory_of", "gguf_of"]

LLAMA = "llama.cpp"


def directory_of(model: str | Path) -> Path:
    """A model as a Hugging Face directory.

    Raises:
        CheckpointError: no such model, or one that can't be written as one.
    """
    place = locate(model)
    if place.is_dir():
        return place
    made = _folder(place) / "directory"
    if not made.is_dir():
        convert(place, made)
    return made


def gguf_of(model: str | Path, kind: str, options: Options) -> Path:
    """A model as a GGUF file whose weights are of a kind of llama.cpp's: ``F32``, ``BF16``, ``Q8_0``, ``Q4_K_M``, ...

    float32 is written by us, everything else from that by llama.cpp's own quantiser.

    Raises:
        CheckpointError: no such model, or one that GGUF has no form for.
        PeerError: llama.cpp can't make it.
    """
    place = directory_of(model)
    folder = _folder(place)
    whole, wanted = folder / "F32.gguf", folder / f"{kind}.gguf"
    if not whole.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        convert(place, whole, dtype="f32")
    if not wanted.is_file():
        python = interpreter(LLAMA, options.peer_python, options.see)
        part = wanted.with_suffix(".part")
        with Worker(LLAMA, script_of("files", LLAMA), python, threads=options.threads) as worker:
            worker.load()
            worker.run(source=str(whole), target=str(part), type=kind, threads=options.threads)
        part.replace(wanted)
    return wanted


def _folder(place: Path) -> Path:
    """Where what is made of a checkpoint is kept: another place for other weights."""
    body = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    told = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in body]
    return home() / "models" / f"{place.stem}-{hashlib.sha256(repr(told).encode()).hexdigest()[:12]}"
