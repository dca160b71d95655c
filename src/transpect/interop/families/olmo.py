"""OLMo (Groeneveld et al. 2024): Llama with LayerNorm without weights, and projections held within bounds."""

from transpect.core import PlainLayerNorm, override
from transpect.interop.families import llama_like
from transpect.interop.family import Family
from transpect.interop.options import Key
from transpect.interop.rope import RopeOptions

FAMILY = Family(
    model_type="olmo",
    table=llama_like.table,
    template=override(llama_like.TEMPLATE, [("decoder.norm", PlainLayerNorm())]),
    heads=llama_like.heads("Olmo", without=("OlmoForTokenClassification",)),
    entries=llama_like.entries(
        {"vocab_size": 50304},
        Key("clip_qkv", "decoder.attention.clip", None),
        RopeOptions("decoder.positions"),
        without=("mlp_bias", "rms_norm_eps"),
    ),
    bare=frozenset({"OlmoModel"}),
)
