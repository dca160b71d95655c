"""A module's weights as kernels read them: without a copy where that can be."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError

Array = Any
NO_BIAS = np.zeros(0, np.float32)


class Bound(NamedTuple):
    """A linear layer.

    Attributes:
        weight: what `products.pair` multiplies with.
        width: N, how many outputs.
        bias: float32 [N], or empty.
    """

    weight: Any
    width: int
    bias: Array = NO_BIAS


def bound(linear: nn.Module) -> Bound:
    """The weight as it is stored, and the bias in float32.

    Raises:
        ConfigError: a dtype that there is no product for.
    """
    weight: Any = linear.weight
    return Bound(stored(weight), len(weight), NO_BIAS if linear.bias is None else small(linear.bias))


def stored(weight: Tensor) -> Array:
    """A float32 array, or the bits of bfloat16 as uint16; it shares the memory of the weight."""
    flat = weight.detach().contiguous()
    if flat.dtype == torch.float32:
        return flat.numpy()
    if flat.dtype == torch.bfloat16:
        return flat.view(torch.int16).numpy().view(np.uint16)
    raise refused(f"weights of {flat.dtype}")


def small(vector: Any) -> Array:
    """A copy in float32."""
    return vector.detach().float().numpy().copy()


def refused(what: str) -> ConfigError:
    """What a decode program can't do."""
    return ConfigError(f"a decode program has no kernel for {what}", remedy="Decode with runtime=torch.")
