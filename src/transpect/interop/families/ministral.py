"""Ministral (Mistral AI 2024): Mistral with a window in some layers."""

from dataclasses import replace

from transpect.interop.families import llama_like, mistral
from transpect.interop.layer_types import EveryLayer, Layers, Windows
from transpect.interop.rope import RopeOptions

FAMILY = replace(
    mistral.FAMILY,
    model_type="ministral",
    heads=llama_like.heads("Ministral"),
    entries=llama_like.entries(
        mistral.DEFAULTS,
        RopeOptions("decoder.positions"),
        Layers("decoder", (Windows(EveryLayer(4096)),)),
        without=mistral.WITHOUT,
    ),
    bare=frozenset({"MinistralModel"}),
)
