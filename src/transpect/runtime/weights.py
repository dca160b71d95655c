"""A module's weights as kernels read them: without a copy where that can be."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.quant import GgufBlocks, Int4, Int8, QuantEmbedding, QuantLinear
from transpect.quant.linear import Quantised
from transpect.runtime import products
from transpect.runtime.products.formats import BLOCK

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
    own: Any = linear
    bias = NO_BIAS if own.bias is None else small(own.bias)
    if isinstance(linear, QuantLinear):
        return Bound(packed(linear), linear.out_features, bias)
    return Bound(stored(own.weight), len(own.weight), bias)


def table(token: nn.Module) -> Bound:
    """A token table as the projection to the vocabulary reads it."""
    if isinstance(token, QuantEmbedding):
        return Bound(packed(token), token.num_embeddings)
    weight: Any = token.weight
    return Bound(stored(weight), len(weight))


def packed(module: Quantised) -> Any:
    """Weights in a format as their product reads them, sharing the memory of the buffers where that can be.

    Raises:
        ConfigError: a width that is not whole blocks, or groups that are not.
    """
    arrays = {key: value.contiguous().numpy() for key, value in module.stored().items()}
    match module.format:
        case Int8(group=None):
            return products.Int8Rows.of(arrays["packed"], arrays["scale"])
        case Int8(group=int(group)) | Int4(group=int(group)) if group % BLOCK:
            raise refused(f"groups of {group} weights, which are not whole blocks of {BLOCK}")
        case Int8():
            return products.Int8Groups.of(arrays["packed"], arrays["scale"])
        case Int4(symmetric=True):
            return products.Int4Groups.of(arrays["packed"], arrays["scale"])
        case Int4():
            return products.Int4Shifted.of(arrays["packed"], arrays["scale"], arrays["zero"])
        case GgufBlocks(block=block):
            return getattr(products, block)(arrays["packed"])
    raise refused(f"weights in the format {module.format}")


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
