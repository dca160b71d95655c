"""Qwen 3 (Yang et al. 2025): Llama with a norm on each query and key head, and a window in late layers."""

from transpect.core import QkNorm, RMSNorm, override
from transpect.interop.families import llama_like
from transpect.interop.family import Family
from transpect.interop.layer_types import LastLayers, Layers, Windows
from transpect.interop.options import Key
from transpect.interop.rope import RopeOptions

FAMILY = Family(
    model_type="qwen3",
    table=llama_like.table,
    template=override(llama_like.TEMPLATE, [("decoder.attention.qk_norm", QkNorm(RMSNorm()))]),
    heads=llama_like.heads("Qwen3"),
    entries=llama_like.entries(
        {
            "vocab_size": 151936,
            "head_dim": 128,
            "intermediate_size": 22016,
            "max_position_embeddings": 32768,
            "num_key_value_heads": 32,
        },
        Key("rms_norm_eps", "decoder.attention.qk_norm.norm.eps", 1e-6),
        RopeOptions("decoder.positions"),
        Layers("decoder", (Windows(LastLayers()),)),
        without=("mlp_bias",),
    ),
    bare=frozenset({"Qwen3Model"}),
)
