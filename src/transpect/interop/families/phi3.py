"""Phi-3 and Phi-4 (Abdin et al. 2024): Llama with projections stored in one piece, partial rotary and LongRoPE."""

from transpect.core import ModelConfig
from transpect.interop.families import llama_like
from transpect.interop.families.decoder import FFN, SELF, projections
from transpect.interop.family import Family
from transpect.interop.layer_types import EveryLayer, Layers, Windows
from transpect.interop.layouts import Fused
from transpect.interop.options import Allowed, Key
from transpect.interop.rope import RopeOptions
from transpect.interop.tensors import Row, Table

QKV = (Row("layers.#.self_attn.qkv_proj.*", projections(SELF), Fused()),)
GATED = (
    Row("layers.#.mlp.gate_up_proj.*", projections(FFN, "gate", "up"), Fused()),
    Row("layers.#.mlp.down_proj.*", f"{FFN}.body.down.*"),
)


def table(config: ModelConfig) -> Table:
    """The tensors of ``Phi3ForCausalLM`` and its siblings."""
    return llama_like.table(config, qkv=QKV, ffn=GATED)


FAMILY = Family(
    model_type="phi3",
    table=table,
    template=llama_like.TEMPLATE,
    heads=llama_like.heads("Phi3"),
    entries=llama_like.entries(
        {
            "vocab_size": 32064,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
        },
        Key("resid_pdrop", "decoder.dropout", 0.0),
        Key("embd_pdrop", "embedding.dropout", 0.0),
        RopeOptions("decoder.positions", fraction=1.0),
        Layers("decoder", (Windows(EveryLayer(), typed=False),)),
        without=("attention_bias", "mlp_bias"),
    ),
    allowed=Allowed(
        {
            "attention_bias": (False,),
            "mlp_bias": (False,),
            "lm_head_bias": (False,),
            "full_attn_mod": (1,),
            "interpolate_factor": (1,),
        }
    ),
    bare=frozenset({"Phi3Model"}),
)
