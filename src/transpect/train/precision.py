"""Precisions. Weights, gradients and optimizer state are always float32; what differs is the arithmetic of a pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import nn

from transpect.base.errors import ConfigError

Precision = Literal["fp32", "bf16", "fp16"]


DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


def arithmetic(name: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context of a forward pass: nothing for fp32, autocast to bfloat16 for bf16 and to float16 for fp16.

    float16's gradients need a `LossScale`.
    """
    return nullcontext() if name == "fp32" else torch.autocast(device.type, DTYPES[name])


def check_weights(model: nn.Module) -> None:
    """Refuse weights in a dtype that swallows small updates.

    bfloat16 has 8 bits: beside 1 the next numbers are 2⁻⁷ above and 2⁻⁸ below, so an update of 6e-4 rounds to
    nothing, a thousand times over. float16's step there is 2⁻¹⁰.

    Raises:
        ConfigError: a trainable weight that is neither float32 nor float64.
    """
    for name, weight in model.named_parameters():
        if weight.requires_grad and weight.dtype not in (torch.float32, torch.float64):
            raise ConfigError(
                f"weights to be trained must be float32: {name} would round small updates to nothing",
                value=str(weight.dtype),
                remedy="Call model.float(), and train with precision bf16 for the speed of bfloat16.",
            )
