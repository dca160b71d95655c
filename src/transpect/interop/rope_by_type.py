"""Rotary positions of layers with a window, and of those without, as Hugging Face configs state them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transpect.base.codec import Data, apply_overrides, to_data
from transpect.base.errors import CheckpointError
from transpect.core import Window
from transpect.core.positions import Rope
from transpect.interop.layer_types import FULL, SLIDING, PerLayer, Windows
from transpect.interop.options import Options
from transpect.interop.rope import LENGTH, RopeOptions

SCALING, BY_TYPE = "rope_scaling", "rope_parameters"


@dataclass(frozen=True)
class RopeByType(PerLayer):
    """Two dialects: bases under names of their own and one ``rope_scaling``, or ``rope_parameters`` by type of layer.
    Where both speak, they must agree.

    Attributes:
        windows: which layers see a window.
        local: the name of the base of layers with a window.
        wide: layers without one.
        near: layers with one.
        scales_both: ``rope_scaling`` is for all layers (ModernBERT), not for those without a window alone (Gemma 3).
    """

    windows: Windows
    local: str = "rope_local_base_freq"
    wide: RopeOptions = field(default_factory=lambda: RopeOptions("positions", theta=1e6))
    near: RopeOptions = field(default_factory=lambda: RopeOptions("positions", theta=1e4))
    scales_both: bool = False

    def defaults(self) -> Mapping[str, Any]:
        return {**self.wide.defaults(), self.local: None}

    def read(self, options: Options, n_layers: int) -> list[Data]:
        by_type = options[BY_TYPE] or {}
        if not isinstance(by_type, dict) or not by_type.keys() <= {FULL, SLIDING}:
            raise CheckpointError(f"{BY_TYPE} must have the types {FULL} and {SLIDING}", value=by_type)
        base, scaling = self.wide.names[0], options[SCALING]
        of_wide = {base: options[base], SCALING: scaling, BY_TYPE: by_type.get(FULL)}
        of_near = {self.near.names[0]: options[self.local], BY_TYPE: by_type.get(SLIDING)}
        wide = _positions(self.wide, options, of_wide)
        near = _positions(self.near, options, {**of_near, SCALING: scaling if self.scales_both else None})
        return [{"positions": near if windowed else wide} for windowed in self.windows.windowed(options, n_layers)]

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        near = _only([layer for layer in layers if layer["visibility"]["kind"] == Window.kind], self.near)
        wide = _only([layer for layer in layers if layer["visibility"]["kind"] != Window.kind], self.wide)
        said, local = self.wide.write({"positions": wide}), self.near.write({"positions": near})
        bases = said[self.wide.names[0]], local[self.near.names[0]]
        if local[SCALING] is None and (said[SCALING] is None or not self.scales_both):
            return {**said, self.local: bases[1]}
        return {BY_TYPE: {FULL: _as_parameters(said, bases[0]), SLIDING: _as_parameters(local, bases[1])}}


def _positions(entry: RopeOptions, options: Options, said: Mapping[str, Any]) -> Data:
    part = Options({**said, LENGTH: options[LENGTH]}, entry.defaults(), options.head, options.tensors)
    overrides = list(entry.read(part))
    if any(place == "context_length" for place, _ in overrides):
        raise CheckpointError("layers of several types can't have dynamic scaling", value=dict(said))
    data: Data = apply_overrides({"positions": to_data(Rope())}, overrides)["positions"]
    return data


def _only(layers: Sequence[Data], entry: RopeOptions) -> Data:
    """The positions that all of these layers have."""
    schemes: list[Data] = [layer["positions"] for layer in layers] or [to_data(Rope(theta=entry.theta))]
    if any(scheme != schemes[0] for scheme in schemes):
        raise CheckpointError("layers of one type must have the same positions", value=schemes)
    return schemes[0]


def _as_parameters(said: Mapping[str, Any], base: float) -> dict[str, Any]:
    scaling = {name: value for name, value in (said[SCALING] or {}).items() if name != "type"}
    return {"rope_type": "default", **scaling, "rope_theta": base}
