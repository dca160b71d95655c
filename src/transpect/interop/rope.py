"""Rotary positions as Hugging Face configs state them: ``rope_theta`` and ``rope_scaling``, or ``rope_parameters``.

Both dialects are read. The older one is written, since every version and most other tools understand it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.interop.options import Entry, Options, Override, at, is_one_of

LENGTH = "max_position_embeddings"
THETA, FRACTION = "rope_theta", "partial_rotary_factor"
ORIGINAL = "original_max_position_embeddings"

# for each kind of scaling, what its mapping may hold besides its kind
_KNOWN: dict[str, frozenset[str]] = {
    "none": frozenset(),
    "linear": frozenset({"factor"}),
    "dynamic": frozenset({"factor"}),
    "yarn": frozenset(
        {"factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}
    ),
    "llama3": frozenset({"factor", ORIGINAL, "low_freq_factor", "high_freq_factor"}),
    "longrope": frozenset({"short_factor", "long_factor", "factor", ORIGINAL, "attention_factor"}),
}


@dataclass(frozen=True)
class RopeOptions(Entry):
    """A tower's rotary positions.

    Dynamic NTK has no length of its own there: the original one is ``max_position_embeddings``, and our context is
    ``factor`` times as long.

    Attributes:
        place: of the positions in our config.
        theta: the base when absent.
        fraction: the share of each head that turns when absent; None where the family turns all of it, always.
        names: of base and share, where the family has words of its own for them.
    """

    place: str
    theta: float = 10000.0
    fraction: float | None = None
    names: tuple[str, str] = (THETA, FRACTION)

    def defaults(self) -> Mapping[str, Any]:
        partial = () if self.fraction is None else (self.names[1], FRACTION)
        return dict.fromkeys((self.names[0], THETA, *partial, "rope_scaling", "rope_parameters", ORIGINAL))

    def read(self, options: Options) -> Iterable[Override]:
        said = _joined(options, self.names)
        theta, fraction = said.pop(THETA, None), said.pop(FRACTION, None)
        if self.fraction is None and fraction not in (None, 1.0):
            raise CheckpointError(f"{FRACTION} must be 1 in this family", value=fraction)
        if self.fraction is not None:
            yield f"{self.place}.fraction", self.fraction if fraction is None else fraction
        kind = _kind(said)
        unknown = sorted(said.keys() - _KNOWN[kind])
        if unknown:
            raise CheckpointError(
                f"RoPE scaling of type {kind} has unknown options, and none is dropped in silence", value=unknown
            )
        length = options[LENGTH]
        original = options[ORIGINAL] or said.get(ORIGINAL) or length
        if kind in ("yarn", "longrope") and "factor" not in said:
            said["factor"] = _number({LENGTH: length}, LENGTH) / _number({ORIGINAL: original}, ORIGINAL)
        yield f"{self.place}.theta", self.theta if theta is None else theta
        yield f"{self.place}.scaling", {"kind": kind, **_scaling(kind, said, original)}
        if kind == "dynamic":
            yield "context_length", math.floor(_number({LENGTH: length}, LENGTH) * _number(said, "factor"))

    def write(self, ours: Data) -> Mapping[str, Any]:
        said = {self.names[0]: at(ours, f"{self.place}.theta")}
        if self.fraction is not None:
            said[self.names[1]] = at(ours, f"{self.place}.fraction")
        return {**said, **self._write_scaling(ours)}

    def _write_scaling(self, ours: Data) -> Mapping[str, Any]:
        scaling = dict(at(ours, f"{self.place}.scaling"))
        kind = scaling.pop("kind")
        if kind == "none":
            return {"rope_scaling": None}
        original = scaling.pop("original_length", None)
        if kind == "longrope":
            return _write_longrope(scaling, original, at(ours, "context_length"))
        said = {
            "rope_type": kind,
            "type": kind,
            **{name: value for name, value in scaling.items() if value is not None},
        }
        if kind == "dynamic":
            return {"rope_scaling": said, LENGTH: original}
        return {"rope_scaling": said if original is None else {**said, ORIGINAL: original}}


def _write_longrope(scaling: Mapping[str, Any], original: int, length: int) -> dict[str, Any]:
    """LongRoPE as Phi-3 says it: many readers want just these three, and the original length beside them."""
    said: dict[str, Any] = {
        "type": "longrope",
        "short_factor": scaling["short"],
        "long_factor": scaling["long"],
    }
    if scaling["factor"] != length / original:
        said["factor"] = scaling["factor"]
    if scaling["attention_factor"] is not None:
        said["attention_factor"] = scaling["attention_factor"]
    return {"rope_scaling": said, ORIGINAL: original}


def _joined(options: Options, names: tuple[str, str]) -> dict[str, Any]:
    """Both dialects in one mapping; where both speak, they must agree."""
    said: dict[str, Any] = {}
    for name in ("rope_parameters", "rope_scaling"):
        part = options[name]
        if part is None:
            continue
        if not isinstance(part, dict):
            raise CheckpointError(f"{name} must be a mapping", value=part)
        part = dict(part)
        kinds = [part.pop(alias) for alias in ("rope_type", "type") if part.get(alias) is not None]
        if any(kind != kinds[0] for kind in kinds):
            raise CheckpointError(f"{name} names two types", value=kinds)
        part = {key: value for key, value in part.items() if value is not None} | {
            "rope_type": kinds[0] if kinds else None
        }
        _merge(said, part)
    for name, word in zip((*names, THETA, FRACTION), (THETA, FRACTION) * 2, strict=True):
        if options[name] is not None:
            _merge(said, {word: options[name]})
    return said


def _merge(said: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if key in said and said[key] != value:
            raise CheckpointError(f"{key} is said twice, and differently", value=[said[key], value])
        said[key] = value


def _kind(said: dict[str, Any]) -> str:
    named = said.pop("rope_type", None)
    kind = "none" if named in (None, "default") else named
    if kind == "su" or (kind == "yarn" and "short_factor" in said):  # early names of it
        kind = "longrope"
    if not is_one_of(kind, _KNOWN):
        known = ", ".join(name for name in _KNOWN if name != "none")
        raise CheckpointError(f"RoPE scaling must be of type default, {known}", value=kind)
    if kind == "none" and named is None and said.keys() - {THETA, FRACTION}:
        raise CheckpointError("RoPE scaling has options but no type", value=sorted(said))
    return str(kind)


def _scaling(kind: str, said: Mapping[str, Any], original: int) -> dict[str, Any]:
    if kind == "none":
        return {}
    factor = _number(said, "factor")
    if kind == "linear":
        return {"factor": factor}
    if kind == "dynamic":
        return {"factor": factor, "original_length": original}
    if kind == "llama3":
        names = ("low_freq_factor", "high_freq_factor")
        return {"factor": factor, "original_length": original, **{name: _number(said, name) for name in names}}
    if kind == "longrope":
        return {
            "short": said.get("short_factor"),
            "long": said.get("long_factor"),
            "factor": factor,
            "original_length": original,
            "attention_factor": said.get("attention_factor"),
        }
    return {
        "factor": factor,
        "original_length": original,
        "beta_fast": said.get("beta_fast") or 32.0,
        "beta_slow": said.get("beta_slow") or 1.0,
        "attention_factor": _attention_factor(said, factor),
        "truncate": said.get("truncate", True),
    }


def _attention_factor(said: Mapping[str, Any], factor: float) -> float | None:
    """YaRN's factor on sine and cosine: as given, or from DeepSeek's two ``mscale``; None is the paper's."""
    if "attention_factor" in said or not (said.get("mscale") and said.get("mscale_all_dim")):
        return said.get("attention_factor")

    def grown(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    return grown(said["mscale"]) / grown(said["mscale_all_dim"])


def _number(said: Mapping[str, Any], name: str) -> float:
    value = said.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise CheckpointError(f"RoPE scaling needs a positive number for {name}", value=value)
    return float(value)
