"""Whole numbers of few bits in words of 32, without gaps: number i of a row stands at the bits i·b … i·b + b − 1, the
lowest first, and a row is filled up with zeros to a whole word.

Axes: R rows, C numbers of a row, b bits of each, W = ⌈C·b/32⌉ words.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["n_words", "pack", "unpack"]

WORD = 32


def n_words(count: int, bits: int) -> int:
    """W, of a row of C numbers."""
    return -(-count * bits // WORD)


def pack(numbers: Tensor, bits: int) -> Tensor:
    """uint8 [R, C], each below 2ᵇ, as int32 [R, W]; b is 4 or 8."""
    assert bits in (4, 8)
    R, C = numbers.shape
    per_word = WORD // bits
    filled = functional.pad(numbers, (0, -C % per_word))
    whole = filled if bits == 8 else filled[:, 0::2] | filled[:, 1::2] << 4
    return _little(whole.reshape(-1).view(torch.int32)).view(R, n_words(C, bits))


def unpack(words: Tensor, bits: int, count: int) -> Tensor:
    """int32 [R, W] as uint8 [R, C]; b from 1 to 8."""
    flat = _little(words.contiguous()).view(torch.uint8)  # [R, 4·W]
    if bits == 8:
        return flat[:, :count].contiguous()
    if bits == 4:
        return torch.stack([flat & 15, flat >> 4], -1).flatten(-2)[:, :count].contiguous()
    single = np.unpackbits(flat.numpy(), axis=-1, count=count * bits, bitorder="little")
    powers = (1 << np.arange(bits)).astype(np.uint8)
    return torch.from_numpy(single.reshape(len(flat), count, bits) @ powers)


def _little(words: Tensor) -> Tensor:
    """Words whose bytes stand as in the file, the lowest first, whatever this machine does."""
    numbers = words.numpy()
    return torch.from_numpy(numbers.astype("<i4", copy=False).view(np.int32))
