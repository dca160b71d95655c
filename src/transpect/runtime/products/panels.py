"""Products of many rows: weights of every format brought to panels, which tiles multiply with (see `tiles`).

Axes: R rows, D width, C columns of a panel.

A panel is made once for all rows of a pass, and what it is made of is read from memory once. Weights in floating point
become float32; integers become 16 bits wide, with their zeros taken off, so that all formats of integers share two
loops. What an integer stands for is what `plain` says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.numeric import Number, widen
from transpect.runtime.products.formats import (
    BLOCK,
    LINE,
    Q4_0,
    Q4_1,
    Q4_K,
    Q6_K,
    Q8_0,
    Int4Groups,
    Int4Shifted,
    Int8Groups,
    Int8Rows,
    WordBlocks,
    Words,
)
from transpect.runtime.products.kernel import address, chosen_by_types, class_of, float_of_half
from transpect.runtime.products.packing import panel_tile
from transpect.runtime.products.pairs import width_of
from transpect.runtime.products.plain import columns, half
from transpect.runtime.products.tiles import (
    COLUMNS,
    FOUR,
    INTEGER_ROWS,
    ROWS,
    blocks_tile,
    floats_tile,
    four_rows_tile,
    rows_tile,
    shifted_tile,
)

Array = Any
DEPTH = 256
"""Columns of a panel of float32 at a time: it and a tile's rows of x fit into the nearest cache."""
SHIFTED = (Q4_1, Q4_K)
"""Formats whose weights are scale·q − least."""


def multiply(w: Any, first: int, count: int, x: Any, rows: int, room: Array, out: Array) -> None:
    """out[:R, first : first + C] += x[:R] · w[first : first + count]ᵀ; for compiled code.

    Rows after the last one are computed too, up to a multiple of `ROWS`, and mean nothing.

    Args:
        count: at most C; columns after it get nothing added.
        room: float32, as much as `room_for`, to work in.
    """
    raise AssertionError("for compiled code")


def room_for(weight: Any) -> int:
    """How many float32 a panel of a weight takes, with its scales."""
    width = -(-width_of(weight) // BLOCK) * BLOCK
    return int(COLUMNS * (max(DEPTH, width) + 2 * width // BLOCK) + LINE)


@compiled
def _aligned(room: Array) -> Array:
    """From where a line of the cache begins."""
    return room[(-address(room, 0) % LINE) // 4 :]


@compiled
def _place(out: Array, row: int, first: int) -> Any:
    return address(out, row) + 4 * first


def _floats(w: Any, first: int, count: int, x: Any, rows: int, room: Array, out: Array) -> None:
    panel, width = _aligned(room), w.shape[1]
    for begin in range(0, width, DEPTH):
        depth = min(DEPTH, width - begin)
        for c in range(COLUMNS):
            if c < count:
                own = w[first + c]
                for d in range(depth):
                    panel[COLUMNS * d + c] = widen(own[begin + d])
            else:
                for d in range(depth):
                    panel[COLUMNS * d + c] = np.float32(0.0)
        for r in range(0, rows, ROWS):
            own_x, steps = address(x, r) + 4 * begin, (4 * x.shape[1], 4)
            to = _place(out, r, first)
            floats_tile((own_x, *steps, address(panel, 0), 4 * COLUMNS, depth, to, 4 * out.shape[1]))


@compiled
def _both(a: Number, b: Number) -> Number:
    """Two numbers of 16 bits in one word, the first one below."""
    return np.int32(np.uint32(np.uint16(a)) | (np.uint32(np.uint16(b)) << np.uint32(16)))


def _int8_rows(w: Any, first: int, count: int, x: Any, rows: int, room: Array, out: Array) -> None:
    panel, scales, crossed, ahead = _of_int8(w, first, count, room)
    width, step = w.weight.shape[1], 2 * x.value.shape[1]
    for r in range(0, rows, INTEGER_ROWS):
        own_x = address(x.value, r), step, address(x.scale, r), address(x.crossed, r)
        rows_tile((*own_x, panel, scales, crossed, ahead, width, _place(out, r, first), 4 * out.shape[1]))


@compiled
def few(w: Any, first: int, last: int, x: Any, rows: int, room: Array, out: Array) -> None:
    """`multiply` of `Int8Rows` from first to last, at most C, for passes of few rows: they are computed up to a
    multiple of `FOUR`."""
    width, of_x, of_out = w.weight.shape[1], 2 * x.value.shape[1], 4 * out.shape[1]
    values, x_scales, x_crossed = address(x.value, 0), address(x.scale, 0), address(x.crossed, 0)
    panel, scales, crossed, ahead = _of_int8(w, first, last - first, room)
    to = _place(out, 0, first)
    for r in range(0, rows, FOUR):
        own_x = values + of_x * r, of_x, x_scales + 4 * r, x_crossed + 4 * r
        four_rows_tile((*own_x, panel, scales, crossed, ahead, width, to + of_out * r, of_out))


@compiled
def _of_int8(w: Any, first: int, count: int, room: Array) -> tuple[int, int, int, int]:
    """Where the panel of some rows is, their scales and what `crossed` says of them, and where the next ones are."""
    whole, width = _aligned(room), w.weight.shape[1]
    integers = whole.view(np.int32)
    for c in range(COLUMNS):
        there = c < count
        whole[c] = w.scale[first + c] if there else np.float32(0.0)
        integers[COLUMNS + c] = w.total[first + c, 1] if there else np.int32(0)
    panel = address(whole, 2 * COLUMNS)
    panel_tile((address(w.weight, first), width, count, width, panel))
    return panel, address(whole, 0), address(whole, COLUMNS), address(w.weight, first) + COLUMNS * width


def block(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    """Block b of row i is scale·q − least: q [32] in 16 bits is written, (scale, least) returned; for compiled code."""
    raise AssertionError("for compiled code")


def _int8_groups(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    for n in range(BLOCK):
        q[n] = w.weight[i, BLOCK * b + n]
    return w.scale[i, b], np.float32(0.0)


@compiled
def _int4(packed: Array, zero: int, q: Array) -> None:
    for n in range(BLOCK // 2):
        q[2 * n] = np.int16(packed[n] & 15) - zero
        q[2 * n + 1] = np.int16(packed[n] >> 4) - zero


def _int4_groups(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    _int4(w.packed[i, 16 * b : 16 * b + 16], 8, q)
    return float_of_half(w.scale[i, b]), np.float32(0.0)


def _int4_shifted(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    _int4(w.packed[i, 16 * b : 16 * b + 16], np.int64(w.zero[i, b]), q)
    return float_of_half(w.scale[i, b]), np.float32(0.0)


def _q8_0(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    row, at = w.packed[i], 34 * b
    for n in range(BLOCK):
        q[n] = np.int8(row[at + 2 + n])
    return half(row, at), np.float32(0.0)


@compiled
def _nibbles(row: Array, at: int, zero: int, q: Array) -> None:
    for n in range(BLOCK // 2):
        q[n] = np.int16(row[at + n] & 15) - zero
        q[BLOCK // 2 + n] = np.int16(row[at + n] >> 4) - zero


def _q4_0(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    row, at = w.packed[i], 18 * b
    _nibbles(row, at + 2, 8, q)
    return half(row, at), np.float32(0.0)


def _q4_1(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    row, at = w.packed[i], 20 * b
    _nibbles(row, at + 4, 0, q)
    return half(row, at), -half(row, at + 2)


def _q4_k(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    row, at, inner = w.packed[i], 144 * (b // 8), b % 8
    six = row[at + 4 : at + 16]
    if inner < 4:
        scale, least = six[inner] & 63, six[inner + 4] & 63
    else:
        scale = (six[inner + 4] & 15) | ((six[inner - 4] >> 6) << 4)
        least = (six[inner + 4] >> 4) | ((six[inner] >> 6) << 4)
    place, shift = at + 16 + BLOCK * (inner // 2), 4 * (inner % 2)
    for n in range(BLOCK):
        q[n] = (row[place + n] >> shift) & 15
    return half(row, at) * np.float32(scale), half(row, at + 2) * np.float32(least)


def _q6_k(w: Any, i: int, b: int, q: Array) -> tuple[Number, Number]:
    row, at, part, inner = w.packed[i], 210 * (b // 8), b % 8 // 4, b % 4
    four, two, fine = at + 64 * part + BLOCK * (inner % 2), at + 128 + BLOCK * part, at + 192 + 2 * (b % 8)
    for n in range(BLOCK):
        code = ((row[four + n] >> (4 * (inner // 2))) & 15) | (((row[two + n] >> (2 * inner)) & 3) << 4)
        q[n] = np.int16(np.int8(row[fine + n // 16])) * (np.int16(code) - 32)
    return half(row, at + 208), np.float32(0.0)


_BLOCKS: dict[type | None, Any] = {
    Int8Groups: _int8_groups,
    Int4Groups: _int4_groups,
    Int4Shifted: _int4_shifted,
    Q8_0: _q8_0,
    Q4_0: _q4_0,
    Q4_1: _q4_1,
    Q4_K: _q4_k,
    Q6_K: _q6_k,
}
chosen_by_types(block, lambda w, i, b, q: _BLOCKS.get(class_of(w)))


@compiled
def _blocks_panel(w: Any, first: int, count: int, panel: Array, scales: Array, least: Array) -> None:
    q = np.zeros(BLOCK, np.int16)
    for c in range(COLUMNS):
        for b in range(columns(w) // BLOCK):
            scale, minimum = np.float32(0.0), np.float32(0.0)
            if c < count:
                scale, minimum = block(w, first + c, b, q)
            scales[COLUMNS * b + c], least[COLUMNS * b + c] = scale, minimum
            for n in range(BLOCK // 2):
                panel[COLUMNS * (BLOCK // 2 * b + n) + c] = _both(q[2 * n], q[2 * n + 1])


def _by_blocks(tile: Any) -> Any:
    def multiplied(w: Any, first: int, count: int, x: Any, rows: int, room: Array, out: Array) -> None:
        whole, count_of = _aligned(room), columns(w) // BLOCK
        scales, least = whole[: COLUMNS * count_of], whole[COLUMNS * count_of : 2 * COLUMNS * count_of]
        panel = whole[2 * COLUMNS * count_of :].view(np.int32)
        _blocks_panel(w, first, count, panel, scales, least)
        for r in range(0, rows, ROWS):
            own_x = address(x.value, r), 2 * x.value.shape[1], address(x.scale, r), address(x.total, r)
            of_scale, to = 4 * x.scale.shape[1], _place(out, r, first)
            weights = address(panel, 0), address(scales, 0), address(least, 0)
            tile((*own_x, of_scale, *weights, count_of, to, 4 * out.shape[1]))

    return multiplied


_MULTIPLIED: dict[tuple[type | None, type | None], Any] = {
    (None, None): _floats,
    (Int8Rows, Words): _int8_rows,
    **{(kind, WordBlocks): _by_blocks(shifted_tile if kind in SHIFTED else blocks_tile) for kind in _BLOCKS if kind},
}
chosen_by_types(multiply, lambda w, first, count, x, rows, room, out: _MULTIPLIED.get((class_of(w), class_of(x))))


def words(weight: Any, rows: int) -> Words | WordBlocks | None:
    """Room for what a format multiplies with where rows are many; None: float32 rows as they are.

    Raises:
        ConfigError: a width that is not whole blocks.
    """
    if isinstance(weight, Int8Rows):
        return Words.of(rows, weight.weight.shape[1])
    return WordBlocks.of(rows, width_of(weight)) if type(weight) in _BLOCKS else None
