"""Weights in few bits: formats, and the swap of a model's linear layers and token table for such.

A format says which numbers a group of weights may become (a *grid*), a method (`rounding`, `gptq`, `awq`) which of
them each weight becomes, and `swap` puts the results where the model had its weights.
"""

from transpect.quant.agreement import Agreement, agreement, bits_per_weight, windows_of
from transpect.quant.awq import Awq
from transpect.quant.calibration import calibrated_model
from transpect.quant.formats import Format, GgufBlocks, Int4, Int8
from transpect.quant.gptq import Gptq
from transpect.quant.linear import BlocksLinear, Int4Linear, Int8Linear, QuantEmbedding, QuantLinear, QuantProjection
from transpect.quant.names import format_named, plan_named
from transpect.quant.swap import Plan, quantise_model

__all__ = [
    "Agreement",
    "Awq",
    "BlocksLinear",
    "Format",
    "GgufBlocks",
    "Gptq",
    "Int4",
    "Int4Linear",
    "Int8",
    "Int8Linear",
    "Plan",
    "QuantEmbedding",
    "QuantLinear",
    "QuantProjection",
    "agreement",
    "bits_per_weight",
    "calibrated_model",
    "format_named",
    "plan_named",
    "quantise_model",
    "windows_of",
]
