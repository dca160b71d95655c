"""A GGUF file as a Hugging Face checkpoint: config.json, tensors, generation_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from transpect.base.errors import CheckpointError
from transpect.base.gguf import Gguf, read_gguf
from transpect.core import Pooled
from transpect.core.heads import Pool
from transpect.interop.gguf.architectures import ARCHITECTURES
from transpect.interop.gguf.table import Architecture, Source, short
from transpect.interop.gguf.weights import GgufWeights, numbers

__all__ = ["NORMALIZE", "POOLS", "SAMPLING", "Checkpoint", "architecture_of", "open_gguf"]

POOLS: Final[dict[Pool, int]] = {"mean": 1, "first": 2, "last": 3}
SAMPLING: Final = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}


class Checkpoint(NamedTuple):
    """What a Hugging Face directory would hold.

    Attributes:
        config: config.json.
        weights: the tensors, by the names of the family.
        generation: generation_config.json.
        pooled: the head of an encoder for embeddings, in place of the one that its family would have; else None.
            Whether its vectors are to be scaled to length 1 is not said in such a file.
    """

    config: dict[str, Any]
    weights: GgufWeights
    generation: dict[str, Any]
    pooled: Pooled | None


# GGUF has no word for it: llama.cpp leaves to its caller whether an embedding is scaled to length 1
NORMALIZE = "transpect.embedding.normalize"


def open_gguf(path: str | Path) -> Checkpoint:
    """Open a GGUF file. Its header is read; the tensors are when they are asked for.

    Raises:
        CheckpointError: no such file, a damaged one, an architecture, key or value that can't be read.
    """
    file = read_gguf(path)
    try:
        architecture = architecture_of(file.metadata)
        shapes = {name: info.shape for name, info in file.tensors.items()}
        source = Source(architecture.name, file.metadata, shapes, lambda name: numbers(file, name))
        config = architecture.read(source)
        generation = _generation(file)
        config |= {name: value for name, value in generation.items() if name.endswith("_token_id")}
        pooled = None
        if not architecture.causal:
            pooled = Pooled(pool=_pool(source), normalize=file.metadata.get(NORMALIZE) is True)
        return Checkpoint(config, GgufWeights(file, architecture, config), generation, pooled)
    except CheckpointError as error:
        error.file = error.file or file.path
        raise


def architecture_of(metadata: Mapping[str, Any]) -> Architecture:
    """The architecture that a file names.

    Raises:
        CheckpointError: none, or one without a table; a part of a model that was split over files.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise CheckpointError(
            f"general.architecture must be one of {', '.join(ARCHITECTURES)}",
            value=name,
            remedy="Load the model's Hugging Face directory instead.",
        )
    if metadata.get("split.count", 1) not in (0, 1):
        raise CheckpointError(
            "a model that is split over several files can't be read",
            value=metadata["split.count"],
            remedy="Join them first: llama-gguf-split --merge FIRST OUT.",
        )
    return ARCHITECTURES[name]


def _pool(source: Source) -> Pool:
    kind = source.get("pooling_type", int, POOLS["first"])
    for pool, number in POOLS.items():
        if number == kind:
            return pool
    raise CheckpointError(
        f"{source.name}.pooling_type must be one of {', '.join(f'{n} ({pool})' for pool, n in POOLS.items())}",
        value=kind,
    )


def _generation(file: Gguf) -> dict[str, Any]:
    def number(name: str) -> int | None:
        value = file.get(f"tokenizer.ggml.{name}_token_id", int)
        return None if value is None or not 0 <= value < 2**31 else int(value)

    ends = [value for name in ("eos", "eot", "eom") if (value := number(name)) is not None]
    ends = list(dict.fromkeys(ends))
    ids = {
        "bos_token_id": number("bos"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": number("padding"),
    }
    found: dict[str, Any] = {name: value for name, value in ids.items() if value is not None}
    for key, name in SAMPLING.items():
        value = file.get(key, (int, float))
        if value is not None:
            found[name] = short(value) if isinstance(value, float) else value
    if "temperature" in found:
        found["do_sample"] = found["temperature"] > 0
    return found
