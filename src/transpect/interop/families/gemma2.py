"""Gemma 2 (Gemma team 2024): soft caps on scores and logits, norms on both sides of a branch, windows in turns."""

from transpect.core import Sandwich, override
from transpect.interop.families import gemma_like, llama_like
from transpect.interop.families.decoder import CAUSAL
from transpect.interop.family import Family
from transpect.interop.layer_types import Layers, Period, Windows
from transpect.interop.options import Allowed, Key, activations, words
from transpect.interop.rope import RopeOptions

FAMILY = Family(
    model_type="gemma2",
    table=llama_like.table,
    template=override(gemma_like.TEMPLATE, [("decoder.placement", Sandwich())]),
    heads=llama_like.heads("Gemma2", tied=True),
    entries=llama_like.entries(
        {
            **gemma_like.DEFAULTS,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
        },
        Key("hidden_activation", "decoder.ffn.act", "gelu_pytorch_tanh", activations("gelu_pytorch_tanh")),
        gemma_like.QueryScale(),
        gemma_like.ScoreCap(),
        Key("final_logit_softcapping", "head.soft_cap", 30.0, heads=CAUSAL),
        RopeOptions("decoder.positions"),
        Layers("decoder", (Windows(Period(2, same="sliding_window_size")),)),
        without=("hidden_act", "mlp_bias"),
    ),
    allowed=Allowed({"use_bidirectional_attention": (None, False)}),
    void=words("hidden_act cache_implementation"),
    bare=frozenset({"Gemma2Model"}),
    opens_there=llama_like.whole_heads,
)
