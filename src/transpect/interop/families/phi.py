"""Phi-1 to Phi-2 (Microsoft 2023): parallel branches that share a norm, partly rotary positions, biases everywhere."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.core import AttentionConfig, Mlp, ModelConfig, NormalInit, StackConfig
from transpect.core.positions import Rope
from transpect.interop.families import llama_like
from transpect.interop.families.decoder import FFN, FINAL, QKV, SELF, head_rows, in_parallel, tied_head
from transpect.interop.family import Family
from transpect.interop.options import Entry, Key, Options, Override, at
from transpect.interop.rope import RopeOptions
from transpect.interop.tensors import Row, Table


def table(config: ModelConfig) -> Table:
    """The tensors of ``PhiForCausalLM`` and its siblings."""
    return Table(
        prefix="model.",
        body=(
            Row("embed_tokens.*", "token.*"),
            *in_parallel(
                (
                    Row("layers.#.input_layernorm.*", f"{SELF}.before.*"),
                    *(Row(f"layers.#.self_attn.{name[0]}_proj.*", f"{SELF}.body.{name}.*") for name in QKV),
                    Row("layers.#.self_attn.q_layernorm.*", f"{SELF}.body.query_norm.*"),
                    Row("layers.#.self_attn.k_layernorm.*", f"{SELF}.body.key_norm.*"),
                    Row("layers.#.self_attn.dense.*", f"{SELF}.body.out.*"),
                    Row("layers.#.mlp.fc1.*", f"{FFN}.body.up.*"),
                    Row("layers.#.mlp.fc2.*", f"{FFN}.body.down.*"),
                )
            ),
            Row("final_layernorm.*", f"{FINAL}.*"),
        ),
        head=head_rows(config),
        aliases=tied_head(config, "model.embed_tokens.weight"),
        void=("layers.#.self_attn.rotary_emb.inv_freq",),
    )


@dataclass(frozen=True)
class QkLayerNorm(Entry):
    """``qk_layernorm``: a norm on queries and one on keys, the same for every head."""

    def defaults(self) -> Mapping[str, Any]:
        return {"qk_layernorm": False}

    def read(self, options: Options) -> Iterable[Override]:
        norm = {"kind": "layernorm", "eps": options["layer_norm_eps"]}
        yield "decoder.attention.qk_norm", {"norm": norm, "over": "head"} if options["qk_layernorm"] else None

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {"qk_layernorm": at(ours, "decoder.attention.qk_norm") is not None}


FAMILY = Family(
    model_type="phi",
    table=table,
    template=ModelConfig(
        vocab_size=51200,
        d_model=2048,
        context_length=2048,
        decoder=StackConfig(
            n_layers=24,
            attention=AttentionConfig(n_heads=32),
            ffn=Mlp(d_ff=8192),
            steps=(("self", "ffn"),),
            shared_norm=True,
            positions=Rope(fraction=0.5),
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads=llama_like.heads("Phi", bias=True),
    entries=llama_like.entries(
        {
            "vocab_size": 51200,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 24,
            "hidden_act": "gelu_new",
        },
        Key("layer_norm_eps", "decoder.norm.eps", 1e-5),
        QkLayerNorm(),
        Key("embd_pdrop", "embedding.dropout", 0.0),
        Key("resid_pdrop", "decoder.dropout", 0.0),
        RopeOptions("decoder.positions", fraction=0.5),
        without=("head_dim", "attention_bias", "mlp_bias", "rms_norm_eps"),
    ),
    bare=frozenset({"PhiModel"}),
)
