"""Mistral (Jiang et al. 2023): Llama with a window in all layers; the window of later ones is null."""

from transpect.interop.families import llama_like
from transpect.interop.family import Family
from transpect.interop.layer_types import EveryLayer, Layers, Windows
from transpect.interop.options import Allowed, words
from transpect.interop.rope import RopeOptions

DEFAULTS = {"intermediate_size": 14336, "max_position_embeddings": 131072, "num_key_value_heads": 8}
WITHOUT = ("attention_bias", "mlp_bias")

FAMILY = Family(
    model_type="mistral",
    table=llama_like.table,
    template=llama_like.TEMPLATE,
    heads=llama_like.heads("Mistral"),
    entries=llama_like.entries(
        DEFAULTS,
        RopeOptions("decoder.positions"),
        Layers("decoder", (Windows(EveryLayer(4096), typed=False),)),
        without=WITHOUT,
    ),
    allowed=Allowed({"attention_bias": (False,)}),
    void=words("pretraining_tp"),
    bare=frozenset({"MistralModel"}),
)
