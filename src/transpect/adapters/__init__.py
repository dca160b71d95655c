"""Adapters: small matrices beside the linear layers of a model that stay as they are. LoRA and DoRA."""

from transpect.adapters.attach import adapters_of, attach, attach_empty, full_state, train_only
from transpect.adapters.linear import DoraLinear, LoraLinear, LowRankLinear
from transpect.adapters.options import Adapter, Dora, Lora

__all__ = [
    "Adapter",
    "Dora",
    "DoraLinear",
    "Lora",
    "LoraLinear",
    "LowRankLinear",
    "adapters_of",
    "attach",
    "attach_empty",
    "full_state",
    "train_only",
]
