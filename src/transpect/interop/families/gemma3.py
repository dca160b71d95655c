"""Gemma 3's language model (Gemma team 2025): norms on queries and keys; windows, with a RoPE of their own.

EmbeddingGemma is one of them, whose tokens see both ways.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transpect.base.codec import Data, apply_overrides, to_data
from transpect.base.errors import CheckpointError
from transpect.core import CausalLM, Pooled, QkNorm, RMSNorm, Sandwich, Window, override
from transpect.core.positions import Rope
from transpect.interop.families import gemma_like, llama_like
from transpect.interop.families.decoder import CAUSAL, LAST
from transpect.interop.family import Family
from transpect.interop.layer_types import FULL, SLIDING, Layers, Period, PerLayer, Windows
from transpect.interop.options import Allowed, Key, Options, activations, words
from transpect.interop.rope import LENGTH, RopeOptions

LOCAL = "rope_local_base_freq"


@dataclass(frozen=True)
class RopeByType(PerLayer):
    """Rotary positions of layers with a window, and of those without.

    Two dialects: ``rope_theta`` and ``rope_scaling`` for layers without, ``rope_local_base_freq`` for layers with one;
    or ``rope_parameters`` by type of layer. Where both speak, they must agree.
    """

    windows: Windows
    wide: RopeOptions = field(default_factory=lambda: RopeOptions("positions", theta=1e6))
    near: RopeOptions = field(default_factory=lambda: RopeOptions("positions", theta=1e4))

    def defaults(self) -> Mapping[str, Any]:
        return {**self.wide.defaults(), LOCAL: None}

    def read(self, options: Options, n_layers: int) -> list[Data]:
        by_type = options["rope_parameters"] or {}
        if not isinstance(by_type, dict) or not by_type.keys() <= {FULL, SLIDING}:
            raise CheckpointError(f"rope_parameters must have the types {FULL} and {SLIDING}", value=by_type)
        own = {"rope_theta": options["rope_theta"], "rope_scaling": options["rope_scaling"]}
        wide = _positions(self.wide, options, {**own, "rope_parameters": by_type.get(FULL)})
        near = _positions(self.near, options, {"rope_theta": options[LOCAL], "rope_parameters": by_type.get(SLIDING)})
        return [{"positions": near if windowed else wide} for windowed in self.windows.windowed(options, n_layers)]

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        near = _only([layer for layer in layers if layer["visibility"]["kind"] == Window.kind], self.near)
        wide = _only([layer for layer in layers if layer["visibility"]["kind"] != Window.kind], self.wide)
        said, local = self.wide.write({"positions": wide}), self.near.write({"positions": near})
        if local["rope_scaling"] is None:
            return {**said, LOCAL: local["rope_theta"]}
        return {"rope_parameters": {FULL: _as_parameters(said), SLIDING: _as_parameters(local)}}


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


def _as_parameters(said: Mapping[str, Any]) -> dict[str, Any]:
    scaling = {name: value for name, value in (said["rope_scaling"] or {}).items() if name != "type"}
    return {"rope_type": "default", **scaling, "rope_theta": said["rope_theta"]}


WINDOWS = Windows(Period(6, name="sliding_window_pattern"), both_ways=True)

FAMILY = Family(
    model_type="gemma3_text",
    table=llama_like.table,
    template=override(
        gemma_like.TEMPLATE,
        [
            ("decoder.placement", Sandwich()),
            ("decoder.attention.qk_norm", QkNorm(RMSNorm(unit_offset=True))),
        ],
    ),
    heads={
        "Gemma3ForCausalLM": CausalLM(),
        "Gemma3TextModel": Pooled(pool="mean"),
        "Gemma3TextForSequenceClassification": LAST,
    },
    entries=llama_like.entries(
        {
            **gemma_like.DEFAULTS,
            "vocab_size": 262208,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "max_position_embeddings": 131072,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
        },
        Key("rms_norm_eps", "decoder.attention.qk_norm.norm.eps", 1e-6),
        Key("hidden_activation", "decoder.ffn.act", "gelu_pytorch_tanh", activations("gelu_pytorch_tanh")),
        gemma_like.QueryScale(),
        Key("final_logit_softcapping", "head.soft_cap", None, heads=CAUSAL),
        Layers("decoder", (WINDOWS, RopeByType(WINDOWS))),
        without=("hidden_act", "mlp_bias", "classifier_dropout"),
    ),
    # `transformers` reads a cap on the scores and leaves it out
    allowed=Allowed({"attn_logit_softcapping": (None,)}),
    void=words("hidden_act cache_implementation _sliding_window_pattern"),
    bare=frozenset({"Gemma3TextModel"}),
    opens_there=llama_like.whole_heads,
)
