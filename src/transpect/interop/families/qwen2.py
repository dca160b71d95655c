"""Qwen 2 and 2.5 (Yang et al. 2024): Llama with biased queries, keys and values, and a window in late layers."""

from transpect.core import override
from transpect.interop.families import llama_like
from transpect.interop.family import Family
from transpect.interop.layer_types import LastLayers, Layers, Windows
from transpect.interop.options import Allowed
from transpect.interop.rope import RopeOptions

FAMILY = Family(
    model_type="qwen2",
    table=llama_like.table,
    template=override(llama_like.TEMPLATE, [("decoder.attention.qkv_bias", True)]),
    heads=llama_like.heads("Qwen2"),
    entries=llama_like.entries(
        {
            "vocab_size": 151936,
            "intermediate_size": 22016,
            "max_position_embeddings": 32768,
            "num_key_value_heads": 32,
        },
        RopeOptions("decoder.positions"),
        Layers("decoder", (Windows(LastLayers()),)),
        without=("attention_bias", "mlp_bias"),
    ),
    allowed=Allowed({"use_mrope": (False,)}),
    bare=frozenset({"Qwen2Model"}),
)
