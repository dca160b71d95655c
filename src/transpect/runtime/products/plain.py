"""Products as plain loops: what the others are, and what a CPU runs that there is nothing else for.

Axes: R rows, D width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.numeric import Number
from transpect.runtime.products.formats import (
    BLOCK,
    Q4_0,
    Q4_1,
    Q4_K,
    Q6_K,
    Q8_0,
    Digits,
    Int4Groups,
    Int4Shifted,
    Int8Groups,
    Words,
)
from transpect.runtime.products.kernel import chosen_by_types, class_of, float_of_half

Array = Any


def int8_rows(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    """`pair` of `Int8Rows` with `Digits` or `Words`."""
    for r in range(rows):
        out[r] = _in_16_bits(w, i, x, start + r)
        out[rows + r] = _in_16_bits(v, j, x, start + r)


@compiled
def _in_16_bits(w: Any, i: int, x: Any, r: int) -> Number:
    total = np.int64(0)
    for d in range(w.weight.shape[1]):
        total += np.int64(w.weight[i, d]) * _integer(x, r, d)
    return np.float32(np.float64(total) * (np.float64(w.scale[i]) * np.float64(x.scale[r])))


def _integer(x: Any, r: int, d: int) -> int:
    """Of column d of a row in 16 bits, without its scale."""
    raise AssertionError("for compiled code")


def _of_digits(x: Any, r: int, d: int) -> Any:
    return 256 * np.int64(x.high[r, d]) + np.int64(x.low[r, d]) - 32768


def _of_words(x: Any, r: int, d: int) -> Any:
    return np.int64(x.value[r, d])


_INTEGERS: dict[type | None, Any] = {Digits: _of_digits, Words: _of_words}
chosen_by_types(_integer, lambda x, r, d: _INTEGERS.get(class_of(x)))


def in_blocks(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    """`pair` of a format of blocks with `Blocks`."""
    for r in range(rows):
        out[r] = _by_blocks(w, i, x, start + r)
        out[rows + r] = _by_blocks(v, j, x, start + r)


@compiled
def _by_blocks(w: Any, i: int, x: Any, r: int) -> Number:
    total = np.float32(0.0)
    for block in range(columns(w) // BLOCK):
        own = np.float32(0.0)
        for n in range(BLOCK):
            place = n // 2 + BLOCK // 2 * (n % 2) if x.apart else n
            own += number(w, i, BLOCK * block + n) * np.float32(x.value[r, BLOCK * block + place])
        total += own * x.scale[r, block]
    return total


def number(w: Any, i: int, d: int) -> Number:
    """The weight in row i and column d; for compiled code."""
    raise AssertionError("for compiled code")


def columns(w: Any) -> int:
    """D; for compiled code."""
    raise AssertionError("for compiled code")


def _int8_groups(w: Any, i: int, d: int) -> Number:
    return w.scale[i, d // BLOCK] * np.float32(w.weight[i, d])


def _int4_groups(w: Any, i: int, d: int) -> Number:
    q = np.float32((w.packed[i, d // 2] >> (4 * (d % 2))) & 15)
    return float_of_half(w.scale[i, d // BLOCK]) * (q - np.float32(8.0))


def _int4_shifted(w: Any, i: int, d: int) -> Number:
    q = np.float32((w.packed[i, d // 2] >> (4 * (d % 2))) & 15)
    return float_of_half(w.scale[i, d // BLOCK]) * (q - np.float32(w.zero[i, d // BLOCK]))


@compiled
def half(row: Array, at: int) -> Number:
    """The float16 in two bytes of a row."""
    return float_of_half(np.uint16(row[at]) | (np.uint16(row[at + 1]) << np.uint16(8)))


@compiled
def _nibble(row: Array, at: int, n: int) -> Number:
    """Of 16 bytes the lower four bits in order, then the upper ones."""
    return np.float32((row[at + n % 16] >> (4 * (n // 16))) & 15)


def _q8_0(w: Any, i: int, d: int) -> Number:
    row, at = w.packed[i], 34 * (d // BLOCK)
    return half(row, at) * np.float32(np.int8(row[at + 2 + d % BLOCK]))


def _q4_0(w: Any, i: int, d: int) -> Number:
    row, at = w.packed[i], 18 * (d // BLOCK)
    return half(row, at) * (_nibble(row, at + 2, d % BLOCK) - np.float32(8.0))


def _q4_1(w: Any, i: int, d: int) -> Number:
    row, at = w.packed[i], 20 * (d // BLOCK)
    return half(row, at) * _nibble(row, at + 4, d % BLOCK) + half(row, at + 2)


def _q4_k(w: Any, i: int, d: int) -> Number:
    row, at, block = w.packed[i], 144 * (d // 256), d % 256 // BLOCK
    six = row[at + 4 : at + 16]
    if block < 4:
        scale, least = six[block] & 63, six[block + 4] & 63
    else:
        scale = (six[block + 4] & 15) | ((six[block - 4] >> 6) << 4)
        least = (six[block + 4] >> 4) | ((six[block] >> 6) << 4)
    q = (row[at + 16 + BLOCK * (block // 2) + d % BLOCK] >> (4 * (block % 2))) & 15
    return half(row, at) * np.float32(scale) * np.float32(q) - half(row, at + 2) * np.float32(least)


def _q6_k(w: Any, i: int, d: int) -> Number:
    row, at, part, block = w.packed[i], 210 * (d // 256), d % 256 // 128, d % 128 // BLOCK
    four = (row[at + 64 * part + BLOCK * (block % 2) + d % BLOCK] >> (4 * (block // 2))) & 15
    two = (row[at + 128 + BLOCK * part + d % BLOCK] >> (2 * block)) & 3
    scale = np.float32(np.int8(row[at + 192 + d % 256 // 16]))
    return half(row, at + 208) * scale * (np.float32(four | (two << 4)) - np.float32(32.0))


_NUMBERS: dict[type | None, Any] = {
    Int8Groups: _int8_groups,
    Int4Groups: _int4_groups,
    Int4Shifted: _int4_shifted,
    Q8_0: _q8_0,
    Q4_0: _q4_0,
    Q4_1: _q4_1,
    Q4_K: _q4_k,
    Q6_K: _q6_k,
}
_COLUMNS: dict[type | None, Any] = {
    Int8Groups: lambda w: w.weight.shape[1],
    Int4Groups: lambda w: 2 * w.packed.shape[1],
    Int4Shifted: lambda w: 2 * w.packed.shape[1],
    Q8_0: lambda w: w.packed.shape[1] // 34 * 32,
    Q4_0: lambda w: w.packed.shape[1] // 18 * 32,
    Q4_1: lambda w: w.packed.shape[1] // 20 * 32,
    Q4_K: lambda w: w.packed.shape[1] // 144 * 256,
    Q6_K: lambda w: w.packed.shape[1] // 210 * 256,
}
chosen_by_types(number, lambda w, i, d: _NUMBERS.get(class_of(w)))
chosen_by_types(columns, lambda w: _COLUMNS.get(class_of(w)))
