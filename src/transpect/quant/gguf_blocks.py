"""Blocks of a GGUF file: their bytes, and the grids that they can hold (ggml-common.h, ggml-quants.c).

Axes: N rows, B blocks of a row, S scales of a block, g weights of a scale, G = B·S, D = B·S·g.

The K kinds keep the scales of a block as whole numbers of 6 or 8 bits of one float16: the largest is made 63 (or ±127),
so that the float16 can be had back from the scales.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.quant.grid import Attempt, Grid, Group, Search, Store, Tried, best, parted, symmetric

Pack = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Kind:
    """Attributes:
    weights: of a block.
    bytes: of a block.
    group: g.
    fit: a grid for [N, D] and its importance.
    pack: codes [N, B, S·g] with scales and offsets [N, B, S] -> bytes [N, B, bytes].
    unpack: the bytes -> weights [N, B, S·g] in float32.
    """

    weights: int
    bytes: int
    group: int
    fit: Callable[[Tensor, Tensor | None, Search], Grid]
    pack: Pack
    unpack: Callable[[Tensor], Tensor]


def _half(x: Tensor) -> Tensor:
    return x.half().to(x)


def _same(x: Tensor) -> Tensor:
    return x


def _affine(store: Store, *, below: bool) -> Attempt:
    """Grids from the least weight to the largest, clipped about their middle, scale and offset by least squares.

    Args:
        store: how both are kept.
        below: no offset is above 0.
    """

    def attempt(group: Group, clip: float, fitted: bool) -> Tried:
        low, high = group.weight.aminmax(dim=-1)  # [N, G]
        if below:
            low = low.clamp(max=0)
        scale = (high - low) * clip / 15
        offset = (low + high) / 2 - (high - low) * clip / 2
        if below:
            offset = offset.clamp(max=0)
        safe = torch.where(scale == 0, 1.0, scale)
        q = ((group.weight - offset[..., None]) / safe[..., None]).round_().clamp_(0, 15)
        total = group.sum(torch.ones_like(q))
        first, second = group.sum(q), group.sum(q * q)
        value, product = group.sum(group.weight), group.sum(q * group.weight)
        if fitted:
            spread = total * second - first * first
            sound = spread > 1e-6 * total * second
            safe = torch.where(sound, spread, 1.0)
            scale = torch.where(sound, (total * product - first * value) / safe, scale)
            offset = torch.where(sound, (second * value - first * product) / safe, offset)
            if below:
                offset = offset.clamp(max=0)
        s, o = store(scale), store(offset)
        error = s * (s * second - 2 * product) + o * (o * total + 2 * s * first - 2 * value)
        return Grid(s, o, 0, 15), error

    return attempt


def _fit_q8_0(weight: Tensor, importance: Tensor | None, search: Search) -> Grid:
    return best(weight, importance, 32, search, symmetric(-127, 127, _half))


def _fit_q4_0(weight: Tensor, importance: Tensor | None, search: Search) -> Grid:
    return best(weight, importance, 32, search, symmetric(-8, 7, _half, zero=8))


def _fit_q4_1(weight: Tensor, importance: Tensor | None, search: Search) -> Grid:
    return best(weight, importance, 32, search, _affine(_half, below=False))


def _fit_q4_k(weight: Tensor, importance: Tensor | None, search: Search) -> Grid:
    free = best(weight, importance, 32, search, _affine(_same, below=True))
    scale, offset = parted(free.scale, (-1, 8)), parted(free.offset, (-1, 8))
    scale, offset = _levels(scale, 63, 63), _levels(offset, 63, 63)
    return Grid(scale.flatten(-2), offset.flatten(-2), 0, 15)


def _fit_q6_k(weight: Tensor, importance: Tensor | None, search: Search) -> Grid:
    free = best(weight, importance, 16, search, symmetric(-32, 31, _same))
    scale = _levels(parted(free.scale, (-1, 16)), 127, 127)
    return Grid(scale.flatten(-2), torch.zeros_like(free.scale), -32, 31)


def _levels(scale: Tensor, levels: int, most: int) -> Tensor:
    unit, whole = _whole(scale, levels, most)
    return unit[..., None] * whole


def _whole(scale: Tensor, levels: int, most: int) -> tuple[Tensor, Tensor]:
    """[..., S] -> a float16 and whole numbers of it, the largest of which is ``levels``."""
    unit = _half(scale.abs().amax(-1) / levels)
    whole = (scale / torch.where(unit == 0, 1.0, unit)[..., None]).round().clamp(-most, most)
    return unit, torch.where(unit[..., None] == 0, 0.0, whole)


def _bytes(x: Tensor) -> Tensor:
    """[..., S] in float32 -> their float16 as [..., 2·S] bytes."""
    return x.half().contiguous().view(torch.uint8)


def _floats(packed: Tensor) -> Tensor:
    return packed.contiguous().view(torch.float16).float()


def _nibbles(codes: Tensor) -> Tensor:
    """[..., 2·h] -> [..., h]: the first half of a block in the low halves of its bytes."""
    low, high = codes.to(torch.uint8).chunk(2, -1)
    return low | high << 4


def _from_nibbles(packed: Tensor) -> Tensor:
    return torch.cat([packed & 15, packed >> 4], -1).float()


def _pack_q8_0(codes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    return torch.cat([_bytes(scale), codes.to(torch.int8).view(torch.uint8)], -1)


def _unpack_q8_0(packed: Tensor) -> Tensor:
    return packed[..., 2:].contiguous().view(torch.int8).float() * _floats(packed[..., :2])


def _pack_q4_0(codes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    return torch.cat([_bytes(scale), _nibbles(codes)], -1)


def _unpack_q4_0(packed: Tensor) -> Tensor:
    return (_from_nibbles(packed[..., 2:]) - 8) * _floats(packed[..., :2])


def _pack_q4_1(codes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    return torch.cat([_bytes(scale), _bytes(offset), _nibbles(codes)], -1)


def _unpack_q4_1(packed: Tensor) -> Tensor:
    return _from_nibbles(packed[..., 4:]) * _floats(packed[..., :2]) + _floats(packed[..., 2:4])


def _pack_q4_k(codes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    unit, s = _whole(scale, 63, 63)
    least, m = _whole(-offset, 63, 63)
    s, m = s.to(torch.uint8), m.to(torch.uint8)
    # six bits of each: the first four whole, the last four as a low half here and two bits above the first
    first, second = s[..., :4] | (s[..., 4:] >> 4) << 6, m[..., :4] | (m[..., 4:] >> 4) << 6
    third = s[..., 4:] & 15 | (m[..., 4:] & 15) << 4
    pairs = _nibbles(parted(codes, (4, 64))).flatten(-2)  # [N, B, 128]
    return torch.cat([_bytes(unit[..., None]), _bytes(least[..., None]), first, second, third, pairs], -1)


def _unpack_q4_k(packed: Tensor) -> Tensor:
    unit, least = _floats(packed[..., :2]), _floats(packed[..., 2:4])
    first, second, third = packed[..., 4:8], packed[..., 8:12], packed[..., 12:16]
    s = torch.cat([first & 63, third & 15 | first >> 6 << 4], -1).float() * unit  # [N, B, 8]
    m = torch.cat([second & 63, third >> 4 | second >> 6 << 4], -1).float() * least
    codes = parted(_from_nibbles(parted(packed[..., 16:], (4, 32))).flatten(-2), (8, 32))
    return (codes * s[..., None] - m[..., None]).flatten(-2)


def _pack_q6_k(codes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    unit, s = _whole(scale, 127, 127)
    q = parted((codes + 32).to(torch.uint8), (2, 4, 32))  # [N, B, halves, quarters, 32]
    low = q[..., :2, :] & 15 | (q[..., 2:, :] & 15) << 4  # [N, B, 2, 2, 32]
    parts = [(q[..., part, :] >> 4) << 2 * part for part in range(4)]
    high = parts[0] | parts[1] | parts[2] | parts[3]  # [N, B, 2, 32]
    scales = s.to(torch.int8).view(torch.uint8)
    return torch.cat([low.flatten(-3), high.flatten(-2), scales, _bytes(unit[..., None])], -1)


def _unpack_q6_k(packed: Tensor) -> Tensor:
    low = parted(packed[..., :128], (2, 2, 32))
    high = parted(packed[..., 128:192], (2, 1, 32))
    scale = packed[..., 192:208].contiguous().view(torch.int8).float() * _floats(packed[..., 208:])  # [N, B, 16]
    nibbles = torch.cat([low & 15, low >> 4], -2)  # [N, B, 2, 4, 32]
    top = torch.cat([high >> 2 * part & 3 for part in range(4)], -2)
    codes = parted((nibbles | top << 4).float().flatten(-3), (16, 16)) - 32
    return (codes * scale[..., None]).flatten(-2)


KINDS = {
    "Q8_0": Kind(32, 34, 32, _fit_q8_0, _pack_q8_0, _unpack_q8_0),
    "Q4_0": Kind(32, 18, 32, _fit_q4_0, _pack_q4_0, _unpack_q4_0),
    "Q4_1": Kind(32, 20, 32, _fit_q4_1, _pack_q4_1, _unpack_q4_1),
    "Q4_K": Kind(256, 144, 32, _fit_q4_k, _pack_q4_k, _unpack_q4_k),
    "Q6_K": Kind(256, 210, 16, _fit_q6_k, _pack_q6_k, _unpack_q6_k),
}
