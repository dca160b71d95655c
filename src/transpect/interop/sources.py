"""Where a checkpoint lies, and what it is there: one row a kind of file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from transpect.base.errors import CheckpointError
from transpect.core import Pooled
from transpect.interop.compressed import CompressedWeights, Scheme, schemes_of
from transpect.interop.mapped import MappedWeights
from transpect.interop.pickled import PickledWeights
from transpect.interop.sentence import body_of, read_head
from transpect.interop.shards import PICKLED, SAFETENSORS, has_weights
from transpect.interop.weights import Weights, read_json

__all__ = ["CONFIG", "GENERATION", "QUANTISED", "Source", "open_source"]

CONFIG, GENERATION = "config.json", "generation_config.json"
QUANTISED = "quantization_config"


@dataclass(frozen=True)
class Source:
    """A checkpoint, opened.

    Attributes:
        file: what to name when its config is wrong.
        config: as in a ``config.json``.
        generation: as in a ``generation_config.json``.
        weights: opens its tensors; refuses what is damaged.
        names: of its tensors, for what a config leaves open; none where it stands alone.
        pooled: the head that takes the place of the family's own (see `transpect.interop.sentence`).
    """

    file: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    weights: Callable[[], Weights]
    names: Callable[[], Collection[str]]
    pooled: Pooled | None = None


def open_source(place: Path, *, allow_pickle: bool = False) -> Source:
    """A checkpoint by where it lies: a GGUF file, or a Hugging Face directory.

    Raises:
        CheckpointError: a config that can't be read.
    """
    return _gguf(place) if place.is_file() else _directory(place, allow_pickle)


def _directory(folder: Path, allow_pickle: bool) -> Source:
    body = body_of(folder)
    config = read_json(body / CONFIG)
    try:
        schemes = schemes_of(quantised) if (quantised := config.pop(QUANTISED, None)) is not None else ()
    except CheckpointError as error:
        error.file = body / CONFIG
        raise
    weights = cache(lambda: _weights(body, allow_pickle, schemes))
    return Source(
        file=body / CONFIG,
        config=config,
        generation=read_json(body / GENERATION) if (body / GENERATION).is_file() else _forced_bos(config),
        weights=weights,
        names=lambda: weights() if any(has_weights(body, file) for file in (SAFETENSORS, PICKLED)) else (),
        pooled=read_head(folder),
    )


def _forced_bos(config: Mapping[str, Any]) -> dict[str, Any]:
    """What an early config.json says about the first token to write, in either of its words."""
    forced = config.get("forced_bos_token_id")
    if forced is None and config.get("force_bos_token_to_be_generated"):
        forced = config.get("bos_token_id")
    return {} if forced is None else {"forced_bos_token_id": forced}


def _weights(folder: Path, allow_pickle: bool, schemes: Sequence[Scheme]) -> Weights:
    """Safetensors where there are any; pickled ones only where they are asked for."""
    if has_weights(folder, SAFETENSORS):
        mapped = MappedWeights(folder)
        return CompressedWeights(mapped, schemes) if schemes else mapped
    if has_weights(folder, PICKLED) and allow_pickle:
        return PickledWeights(folder)
    pickled = [file.name for pattern in ("*.bin", "*.pt", "*.bin.index.json") for file in sorted(folder.glob(pattern))]
    if has_weights(folder, PICKLED):
        raise CheckpointError(
            "weights must be safetensors; pickled ones can run code when they are read carelessly",
            value=pickled[0],
            file=folder,
            remedy="Allow it where you trust their author: --allow-pickle, or allow_pickle=True. `transpect convert` "
            "then makes safetensors of them.",
        )
    raise CheckpointError(
        f"no {SAFETENSORS} in this directory",
        value=", ".join(pickled) or None,
        file=folder,
        remedy=f"Pickled weights must be called {PICKLED}." if pickled else "",
    )


def _gguf(file: Path) -> Source:
    from transpect.interop.gguf import open_gguf

    opened = open_gguf(file)
    weights = opened.weights
    return Source(file, opened.config, opened.generation, lambda: weights, lambda: weights, opened.pooled)
