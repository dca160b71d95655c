"""Weights in few bits: formats, and the swap of a model's linear layers and token table for such.

A format says which numbers a group of weights may become (a *grid*), a method (`rounding`, `gptq`, `awq`) which of
them each weight becomes, and `swap` puts the results where the model had its weights.
"""

from transpect.quant.formats import Format, GgufBlocks, Int4, Int8
from transpect.quant.linear import BlocksLinear, Int4Linear, Int8Linear, QuantEmbedding, QuantLinear, QuantProjection
from transpect.quant.names import format_named
from transpect.quant.swap import Plan, quantise_model

__all__ = [
    "BlocksLinear",
    "Format",
    "GgufBlocks",
    "Int4",
    "Int4Linear",
    "Int8",
    "Int8Linear",
    "Plan",
    "QuantEmbedding",
    "QuantLinear",
    "QuantProjection",
    "format_named",
    "quantise_model",
]
