"""Gemma 3's language model (Gemma team 2025): norms on queries and keys; windows, with a RoPE of their own.

EmbeddingGemma is one of them, whose tokens see both ways.
"""

from transpect.core import CausalLM, Pooled, QkNorm, RMSNorm, Sandwich, override
from transpect.interop.families import gemma_like, llama_like
from transpect.interop.families.decoder import CAUSAL, LAST
from transpect.interop.family import Family
from transpect.interop.layer_types import Layers, Period, Windows
from transpect.interop.options import Allowed, Key, activations, words
from transpect.interop.rope_by_type import RopeByType

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
