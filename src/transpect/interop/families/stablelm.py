"""StableLM (Stability AI 2023, 2024): Llama with LayerNorm, partly rotary positions, parallel branches if asked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transpect.base.codec import Data
from transpect.core import LayerNorm, ModelConfig
from transpect.core.positions import Rope
from transpect.interop.families import llama_like
from transpect.interop.families.decoder import SELF, ParallelResidual, in_parallel, is_parallel
from transpect.interop.family import Family
from transpect.interop.options import Allowed, Entry, Key, Options, Override, at
from transpect.interop.rope import RopeOptions
from transpect.interop.tensors import Row, Table

TEMPLATE = llama_like.TEMPLATE
assert TEMPLATE.decoder is not None
PER_HEAD = tuple(
    Row(f"layers.#.self_attn.{name[0]}_layernorm.norms.#.*", f"{SELF}.body.{name}_norm.#.*")
    for name in ("query", "key")
)


def table(config: ModelConfig) -> Table:
    """The tensors of ``StableLmForCausalLM`` and its siblings."""
    whole = llama_like.table(config, qkv=(*llama_like.QKV, *PER_HEAD))
    return replace(whole, body=in_parallel(whole.body)) if is_parallel(config) else whole


@dataclass(frozen=True)
class QkLayerNorm(Entry):
    """``qk_layernorm``: a norm on queries and keys, with weights of its own for each head."""

    def defaults(self) -> Mapping[str, Any]:
        return {"qk_layernorm": False}

    def read(self, options: Options) -> Iterable[Override]:
        norm = {"kind": "layernorm", "eps": options["layer_norm_eps"], "bias": False}
        yield "decoder.attention.qk_norm", {"norm": norm, "over": "each_head"} if options["qk_layernorm"] else None

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {"qk_layernorm": at(ours, "decoder.attention.qk_norm") is not None}


FAMILY = Family(
    model_type="stablelm",
    table=table,
    template=replace(TEMPLATE, decoder=replace(TEMPLATE.decoder, norm=LayerNorm(), positions=Rope(fraction=0.25))),
    heads=llama_like.heads("StableLm"),
    entries=llama_like.entries(
        {
            "vocab_size": 50304,
            "intermediate_size": 6912,
            "hidden_size": 2560,
            "num_key_value_heads": 32,
            "max_position_embeddings": 4096,
        },
        Key("use_qkv_bias", "decoder.attention.qkv_bias", False),
        QkLayerNorm(),
        ParallelResidual("use_parallel_residual", default=False, shared_norm=True),
        RopeOptions("decoder.positions", fraction=0.25),
        Key("layer_norm_eps", "decoder.norm.eps", 1e-5),
        without=("attention_bias", "mlp_bias", "head_dim", "rms_norm_eps"),
    ),
    # there it is on the feed-forward branch alone
    allowed=Allowed({"hidden_dropout": (0.0,)}),
    bare=frozenset({"StableLmModel"}),
)
