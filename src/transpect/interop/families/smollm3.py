"""SmolLM3 (Hugging Face 2025): Llama whose every fourth layer has no positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transpect.base.codec import Data, apply_overrides, to_data
from transpect.base.errors import CheckpointError
from transpect.core.positions import NoPosition, Rope
from transpect.interop.families import llama_like
from transpect.interop.family import Family
from transpect.interop.layer_types import Layers, PerLayer, WindowRule, Windows, whole
from transpect.interop.options import Options, is_one_of, words
from transpect.interop.rope import RopeOptions


@dataclass(frozen=True)
class NoRopeLayers(PerLayer):
    """``no_rope_layers`` holds a 1 for each layer *with* rotary positions; without it, each
    ``no_rope_layer_interval``-th layer has none."""

    rope: RopeOptions = field(default_factory=lambda: RopeOptions("positions", theta=2e6))

    def defaults(self) -> Mapping[str, Any]:
        return {**self.rope.defaults(), "no_rope_layers": None, "no_rope_layer_interval": 4}

    def rotary(self, options: Options, n_layers: int) -> list[bool]:
        """For each layer whether it has rotary positions."""
        said = options["no_rope_layers"]
        if said is None:
            interval = whole(options, "no_rope_layer_interval") or 1
            return [(layer + 1) % interval != 0 for layer in range(n_layers)]
        if not isinstance(said, list) or len(said) != n_layers or not all(is_one_of(has, (0, 1)) for has in said):
            raise CheckpointError(f"no_rope_layers must hold 0 or 1 for each of the {n_layers} layers", value=said)
        return [bool(rotary) for rotary in said]

    def read(self, options: Options, n_layers: int) -> list[Data]:
        overrides = list(self.rope.read(options))
        if any(place == "context_length" for place, _ in overrides):
            raise CheckpointError("layers of several types can't have dynamic scaling", value=options["rope_scaling"])
        rope = apply_overrides({"positions": to_data(Rope())}, overrides)["positions"]
        return [{"positions": rope if rotary else to_data(NoPosition())} for rotary in self.rotary(options, n_layers)]

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        schemes = [layer["positions"] for layer in layers]
        rotary = [int(scheme["kind"] == Rope.kind) for scheme in schemes]
        ropes = [scheme for scheme in schemes if scheme["kind"] == Rope.kind] or [to_data(Rope(theta=self.rope.theta))]
        if any(rope != ropes[0] for rope in ropes):
            raise CheckpointError("layers with rotary positions must have the same", value=ropes)
        return {**self.rope.write({"positions": ropes[0]}), "no_rope_layers": rotary}


@dataclass(frozen=True)
class WhereNoRope(WindowRule):
    """Layers without positions see a window, if ``use_sliding_window``."""

    positions: NoRopeLayers

    def defaults(self) -> Mapping[str, Any]:
        return {"use_sliding_window": False, "sliding_window": None}

    def width(self, options: Options) -> int | None:
        return whole(options, "sliding_window")

    def windowed(self, options: Options, n_layers: int) -> list[bool]:
        rotary = self.positions.rotary(options, n_layers)
        return [bool(options["use_sliding_window"]) and not has for has in rotary]

    def write(self, windowed: Sequence[bool], width: int | None) -> Mapping[str, Any]:
        return {} if width is None else {"use_sliding_window": True, "sliding_window": width}


POSITIONS = NoRopeLayers()

FAMILY = Family(
    model_type="smollm3",
    table=llama_like.table,
    template=llama_like.TEMPLATE,
    heads=llama_like.heads("SmolLM3", tied=True),
    entries=llama_like.entries(
        {
            "vocab_size": 128256,
            "hidden_size": 2048,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": True,
        },
        Layers("decoder", (Windows(WhereNoRope(POSITIONS)), POSITIONS)),
    ),
    void=words("pretraining_tp max_window_layers"),
    bare=frozenset({"SmolLM3Model"}),
)
