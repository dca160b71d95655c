"""Files of one model for everyone: a Hugging Face directory, GGUF in each of llama.cpp's formats, CTranslate2's
own.

They are made from the same weights, once, and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from transpect.bench.harness import Options
from transpect.bench.peers import home, interpreter
from transpect.bench.worker import Worker, script_of
from transpect.interop import locate
from transpect.interop.convert import convert

__all__ = ["ctranslate2_of", "directory_of", "gguf_of"]

LLAMA, CTRANSLATE2 = "llama.cpp", "ctranslate2"


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


def ctranslate2_of(model: str | Path, options: Options) -> Path:
    """A model as CTranslate2's own converter writes it, in float32; it takes another format when it loads.

    Raises:
        CheckpointError: no such model.
        PeerError: the converter does not know it, or what it needs is missing.
    """
    place = directory_of(model)
    wanted = _folder(place) / "ctranslate2"
    if not wanted.is_dir():
        theirs = interpreter(CTRANSLATE2, options.peer_python, options.see)
        ask = [str(theirs), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
        packages = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
        with Worker(CTRANSLATE2, script_of("files", CTRANSLATE2), threads=options.threads) as worker:
            worker.load(packages=packages)
            part = wanted.with_suffix(".part")
            worker.run(directory=str(place), target=str(part))
        part.replace(wanted)
    return wanted


def _folder(place: Path) -> Path:
    """Where what is made of a checkpoint is kept: another place for other weights."""
    body = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    told = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in body]
    return home() / "models" / f"{place.stem}-{hashlib.sha256(repr(told).encode()).hexdigest()[:12]}"
