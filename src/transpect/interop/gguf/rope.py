"""Rotary positions in GGUF: the base, linear and YaRN scaling as metadata, Llama 3's scaling as a tensor of factors.

``rope_freqs.weight`` divides each rotary frequency by a number. That Llama 3's rule made these numbers is not written
in the file; its parameters are found again from the numbers, and refused where they do not give the very same ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from transpect.base.errors import CheckpointError
from transpect.interop.gguf.table import Entry, Source, Values, short

__all__ = ["FACTORS", "RopeEntry", "factors", "older"]

FACTORS: Final = "rope_freqs.weight"
ORIGINAL: Final = "original_max_position_embeddings"
_SCALING: Final = "rope.scaling."

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class RopeEntry(Entry):
    """Base and scaling of a stack whose rotary positions turn whole heads.

    Attributes:
        theta: the base where the file does not say it.
        head_dim: whether config.json of the family states it; if not, it must be d_model / n_heads.
    """

    theta: float = 10000.0
    head_dim: bool = True

    keys = (
        "rope.freq_base",
        "rope.dimension_count",
        "attention.key_length",
        "attention.value_length",
        "rope.scale_linear",
        *(
            _SCALING + name
            for name in (
                "type",
                "factor",
                "original_context_length",
                "attn_factor",
                "yarn_beta_fast",
                "yarn_beta_slow",
                "yarn_ext_factor",
                "yarn_attn_factor",
                "yarn_log_multiplier",
            )
        ),
    )

    def read(self, source: Source) -> Values:
        width = _width(source)
        theta = source.get("rope.freq_base", float, self.theta)
        scaling = _scaling(source)
        if FACTORS in source.shapes:
            if scaling is not None:
                raise CheckpointError(f"{FACTORS} can't be joined with scaling of another kind", value=scaling)
            said = source.get(_SCALING + "original_context_length", int, 8192)
            scaling = _found(source.numbers(FACTORS), width, theta, said)
        found: Values = {"rope_theta": theta, "rope_scaling": scaling}
        if self.head_dim:
            return found | {"head_dim": width}
        if width * source.need("attention.head_count", int) != source.need("embedding_length", int):
            raise CheckpointError("a head must have embedding_length / head_count numbers here", value=width)
        return found

    def write(self, config: Mapping[str, Any]) -> Values:
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        found: Values = {
            "rope.freq_base": float(config["rope_theta"]),
            "rope.dimension_count": width,
            "attention.key_length": width,
            "attention.value_length": width,
        }
        said = config.get("rope_scaling") or {}
        kind = said.get("rope_type")
        if kind == "llama3":  # llama.cpp reads the factors alone; the length tells apart what few factors leave open
            found |= {_SCALING + "original_context_length": said[ORIGINAL]}
        if kind in (None, "llama3"):
            return found
        if kind not in ("linear", "yarn"):
            raise CheckpointError("GGUF has no word for this RoPE scaling", value=kind)
        found |= {_SCALING + "type": kind, _SCALING + "factor": float(said["factor"])}
        if kind == "yarn":
            found |= {_SCALING + "original_context_length": said[ORIGINAL]}
        return found


def older(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json whose rotary positions are stated as ``rope_theta`` and ``rope_scaling``, where it states them as
    ``rope_parameters``; those of layers with a window, if they are others, become ``rope_local_base_freq``.

    Raises:
        CheckpointError: layers with a window that scale them.
    """
    said = config.get("rope_parameters")
    if not said:
        return dict(config)
    everywhere = said.get("full_attention", said)
    local = said.get("sliding_attention", {"rope_theta": None})
    if local.get("rope_type", "default") != "default":
        raise CheckpointError("layers with a window can't scale their rotary positions here", value=local)
    scaling = {key: value for key, value in everywhere.items() if key != "rope_theta"}
    found = {
        "rope_theta": everywhere["rope_theta"],
        "rope_scaling": None if scaling.get("rope_type", "default") == "default" else scaling,
        "rope_local_base_freq": local["rope_theta"],
    }
    return {**config, **{key: value for key, value in found.items() if value is not None or key == "rope_scaling"}}


def factors(config: Mapping[str, Any]) -> Array | None:
    """The numbers of ``rope_freqs.weight`` for a config.json; None where it needs none."""
    said = config.get("rope_scaling")
    if said is None or said["rope_type"] != "llama3":
        return None
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return _factors(width, config["rope_theta"], said)


def _width(source: Source) -> int:
    """The numbers in a head, all of which must be turned."""
    heads, d_model = source.need("attention.head_count", int), source.need("embedding_length", int)
    if heads < 1:
        raise CheckpointError(f"{source.name}.attention.head_count must be at least 1", value=heads)
    width = source.get("attention.key_length", int) or source.get("rope.dimension_count", int) or d_model // heads
    values, turned = source.get("attention.value_length", int, width), source.get("rope.dimension_count", int, width)
    if values != width or turned != width:
        raise CheckpointError(
            "keys, values and the part of a head that is turned must have the same length here",
            value=[width, values, turned],
        )
    return int(width)


def _scaling(source: Source) -> dict[str, Any] | None:
    old = source.get("rope.scale_linear", float)
    kind = source.get(_SCALING + "type", str, "linear")
    factor = source.get(_SCALING + "factor", float, old or 0.0)
    for name, usual in (("attn_factor", 1.0), ("yarn_attn_factor", 1.0), ("yarn_log_multiplier", 0.1)):
        if source.get(_SCALING + name, float, usual) != usual:
            raise CheckpointError(f"{_SCALING}{name} can't be other than {usual} here")
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        raise CheckpointError("RoPE scaling must be none, linear or yarn", value=kind)
    for name, usual in (("yarn_beta_fast", 32.0), ("yarn_beta_slow", 1.0), ("yarn_ext_factor", 1.0)):
        if source.get(_SCALING + name, float, usual) not in (usual, -1.0):  # -1 is "as usual"
            raise CheckpointError(f"{_SCALING}{name} can't be other than {usual} here")
    original = source.get(_SCALING + "original_context_length", int, source.need("context_length", int))
    return {"rope_type": "yarn", "factor": factor, ORIGINAL: original}


def _factors(width: int, theta: float, said: Mapping[str, Any]) -> Array:
    """Llama 3's rule: 1 for short wavelengths, ``factor`` for long ones, a smooth way between (Llama 3.1)."""
    frequency = theta ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    turns = said[ORIGINAL] * frequency / (2 * math.pi)
    low, high, factor = said["low_freq_factor"], said["high_freq_factor"], said["factor"]
    smooth = (turns - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(turns > high, 1.0, np.where(turns < low, factor, between)).astype(np.float32)


def _found(given: Array, width: int, theta: float, original: int) -> dict[str, Any] | None:
    """The parameters of Llama 3's rule that give these factors; None where they change nothing.

    Raises:
        CheckpointError: no such parameters.
    """
    if given.shape != (width // 2,):
        raise CheckpointError(f"{FACTORS} must have a number for each pair of a head, {width // 2}", value=given.shape)
    if np.all(given == 1):
        return None
    for said in _candidates(given.astype(np.float64), width, theta, original):
        if np.allclose(_factors(width, theta, said), given, rtol=1e-5, atol=0):
            return {"rope_type": "llama3", **said}
    raise CheckpointError(
        f"{FACTORS} does not hold the factors of Llama 3's RoPE scaling, and none is dropped in silence",
        value=given.tolist(),
    )


def _candidates(given: npt.NDArray[np.float64], width: int, theta: float, original: int) -> Iterator[dict[str, Any]]:
    factor = short(float(given.max()))
    for length in (original, *(2**power for power in range(8, 21))):
        yield {"factor": factor, ORIGINAL: length, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    # Between the ends, smooth = (original · frequency / 2π − low) / (high − low) is a line in the frequency. Only the
    # ratios of the three parameters matter, so low may be 1.
    frequency = theta ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    inside = (given > 1) & (given < factor)
    if factor > 1 and inside.sum() >= 2:
        smooth = (1 / given[inside] - 1 / factor) / (1 - 1 / factor)
        slope, offset = np.polyfit(frequency[inside] / (2 * math.pi), smooth, 1)
        if offset < 0 < slope:
            yield {
                "factor": factor,
                ORIGINAL: round(slope / -offset),
                "low_freq_factor": 1.0,
                "high_freq_factor": 1 - 1 / offset,
            }
