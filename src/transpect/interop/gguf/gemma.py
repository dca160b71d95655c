"""``gemma2`` and ``gemma3``: norms are stored as 1 + weight, layers with and without a window alternate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from transpect.base.checks import MANY
from transpect.base.errors import CheckpointError
from transpect.interop.gguf.llama import STACK, places
from transpect.interop.gguf.rope import RopeEntry
from transpect.interop.gguf.table import Architecture, Entry, Fixed, Key, Layout, Place, Source, Values
from transpect.interop.gguf.tensors import Tied

ABOVE_ONE: Final = Layout(shift=1.0)


@dataclass(frozen=True)
class QueryScale(Entry):
    """1/√``query_pre_attn_scalar``: of a head's width, but of d_model / n_heads in the largest model.

    No file says it: which model it is shows in its number of layers, as in llama.cpp.

    Attributes:
        largest: the number of layers of the largest model.
    """

    largest: int
    keys: tuple[str, ...] = ()

    def read(self, source: Source) -> Values:
        heads, d_model = source.need("attention.head_count", int), source.need("embedding_length", int)
        width = source.get("attention.key_length", int, d_model // heads)
        largest = source.need("block_count", int) == self.largest
        return {"query_pre_attn_scalar": d_model // heads if largest else width}

    def write(self, config: Mapping[str, Any]) -> Values:
        return {}


@dataclass(frozen=True)
class Window(Entry):
    """A window, and that every ``every``-th layer is without one.

    Attributes:
        every: where the file does not say it.
    """

    every: int
    keys: tuple[str, ...] = ("attention.sliding_window", "attention.sliding_window_pattern")

    def read(self, source: Source) -> Values:
        window, layers = source.need("attention.sliding_window", int), source.need("block_count", int)
        if not 0 < layers <= MANY:
            raise CheckpointError(f"{source.name}.block_count must be a number from 1 to {MANY}", value=layers)
        said = source.metadata.get(f"{source.name}.attention.sliding_window_pattern", self.every)
        if not isinstance(said, int | Iterable):
            raise CheckpointError("sliding_window_pattern must be a number, or one for each layer", value=said)
        if isinstance(said, int):
            local = [bool((i + 1) % said) if said else True for i in range(layers)]
        else:
            local = [bool(each) for each in said]
        if len(local) != layers:
            raise CheckpointError("sliding_window_pattern must have a value for each layer", value=len(local))
        kinds = ["sliding_attention" if each else "full_attention" for each in local]
        return {"sliding_window": window, "layer_types": kinds}

    def write(self, config: Mapping[str, Any]) -> Values:
        return {"attention.sliding_window": config.get("sliding_window")}


NORMS: Final = (
    Place("blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight", ABOVE_ONE),
    Place("blk.#.post_attention_norm.weight", "model.layers.#.post_attention_layernorm.weight", ABOVE_ONE),
    Place("blk.#.ffn_norm.weight", "model.layers.#.pre_feedforward_layernorm.weight", ABOVE_ONE),
    Place("blk.#.post_ffw_norm.weight", "model.layers.#.post_feedforward_layernorm.weight", ABOVE_ONE),
    Place("blk.#.attn_q_norm.weight", "model.layers.#.self_attn.q_norm.weight", ABOVE_ONE),
    Place("blk.#.attn_k_norm.weight", "model.layers.#.self_attn.k_norm.weight", ABOVE_ONE),
    Place("output_norm.weight", "model.norm.weight", ABOVE_ONE),
)
PLACES: Final = (*NORMS, *(place for place in places() if "norm" not in place.theirs))

GEMMA2: Final = Architecture(
    name="gemma2",
    model_type="gemma2",
    head="Gemma2ForCausalLM",
    entries=(
        *STACK,
        Fixed({"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}),
        Tied(),
        RopeEntry(),
        QueryScale(largest=46),
        Window(every=2),
        Key("attn_logit_softcapping", "attn_logit_softcapping", float, 50.0),
        Key("final_logit_softcapping", "final_logit_softcapping", float, 30.0),
    ),
    places=PLACES,
)

GEMMA3: Final = Architecture(
    name="gemma3",
    model_type="gemma3_text",
    head="Gemma3ForCausalLM",
    entries=(
        *STACK,
        Fixed({"hidden_activation": "gelu_pytorch_tanh", "attention_bias": False}),
        Tied(),
        RopeEntry(theta=1e6),
        Key("rope.freq_base_swa", "rope_local_base_freq", float, 10000.0),
        QueryScale(largest=62),
        Window(every=6),
        Key("final_logit_softcapping", "final_logit_softcapping", float, None),
    ),
    places=PLACES,
)
