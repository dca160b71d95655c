"""Rows of float32 to the integers that products compute with.

Axes: R rows, D width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.numeric import TO_INTEGER, Number, bits_of, float_of
from transpect.runtime.products.formats import BLOCK, LINE, Blocks, Digits, WordBlocks, Words, crossed
from transpect.runtime.products.kernel import chosen_by_types, class_of

Array = Any
HALF = BLOCK // 2
LARGEST = 32767.0 - 128.0
"""Of the numbers of 16 bits: what is added to a weight of 8 bits still has 16 (see `tiles`)."""
MOST = 2.0**24 - 2.0**17
"""Of a row's 16-bit numbers altogether, without their signs: with weights of 8 bits no sum then leaves 32 bits, and
what is added by vectors may run over on the way. What is missing from 2²⁴ is for rounding."""
_LEAST = np.float32(2.0**-100)
"""A row whose numbers are all smaller is zeros: the reciprocal of its scale would be infinite."""


@compiled
def _largest(x: Array) -> Number:
    """max |x|, NaN if there is one: as integers their bits are larger than those of infinity."""
    most = np.int32(0)
    for d in range(len(x)):
        most = max(most, np.int32(bits_of(x[d]) & np.int32(0x7FFFFFFF)))
    return float_of(most)


@compiled
def _to_16_bits(x: Array) -> Any:
    """What the scale of a row is, and what its numbers are multiplied by: so that the largest becomes `LARGEST`, or
    all together `MOST`."""
    most, total = _largest(x), np.float64(0.0)
    if most < _LEAST:
        return np.float32(0.0), np.float32(0.0)
    for d in range(len(x)):
        total += abs(np.float64(x[d]))
    largest = max(np.float64(most), total * (LARGEST / MOST))
    return np.float32(largest / LARGEST), np.float32(LARGEST / largest)


def _to_digits(x: Array, width: int, first: int, last: int, to: Any) -> None:
    end = (width + LINE - 1) // LINE * LINE
    for r in range(first, last):
        own, high, low = x[r, :width], to.high[r], to.low[r]
        to.scale[r], factor = _to_16_bits(own)
        for d in range(width):
            number = np.uint32(bits_of(np.float32(own[d] * factor + TO_INTEGER))) + np.uint32(32768)
            high[d] = np.uint8(number >> np.uint32(8))
            low[d] = np.uint8(number)
        high[width:end] = 0
        low[width:end] = 0


def _to_words(x: Array, width: int, first: int, last: int, to: Any) -> None:
    end = (width + LINE - 1) // LINE * LINE
    for r in range(first, last):
        own, value = x[r, :width], to.value[r]
        to.scale[r], factor = _to_16_bits(own)
        for d in range(width):
            value[d] = np.int16(bits_of(np.float32(own[d] * factor + TO_INTEGER)))
        value[width:end] = 0
        to.crossed[r] = crossed(value, width)


def _to_blocks(x: Array, width: int, first: int, last: int, to: Any) -> None:
    count = width // BLOCK
    grouped = count // to.together * to.together
    for r in range(first, last):
        for block in range(count):
            own = x[r, BLOCK * block : BLOCK * (block + 1)]
            most = _largest(own)
            empty = most < _LEAST
            scale = np.float32(0.0) if empty else np.float32(most / np.float32(127.0))
            factor = np.float32(0.0) if empty else np.float32(127.0) / most
            if block < grouped:
                place, gap = HALF * (2 * block - block % to.together), HALF * to.together
            else:
                place, gap = BLOCK * block, HALF
            total = np.int32(0)
            stride, other = (2, 1) if to.apart else (1, HALF)
            low, high = to.value[r, place : place + HALF], to.value[r, place + gap : place + gap + HALF]
            for n in range(HALF):
                a = np.int8(bits_of(np.float32(own[stride * n] * factor + TO_INTEGER)))
                b = np.int8(bits_of(np.float32(own[stride * n + other] * factor + TO_INTEGER)))
                low[n], high[n] = a, b
                total += np.int32(a) + np.int32(b)
            to.scale[r, block], to.total[r, block] = scale, scale * np.float32(total)


def _to_word_blocks(x: Array, width: int, first: int, last: int, to: Any) -> None:
    for r in range(first, last):
        for block in range(width // BLOCK):
            own, value = x[r, BLOCK * block : BLOCK * (block + 1)], to.value[r, BLOCK * block : BLOCK * (block + 1)]
            most = _largest(own)
            empty = most < _LEAST
            scale = np.float32(0.0) if empty else np.float32(most / np.float32(127.0))
            factor = np.float32(0.0) if empty else np.float32(127.0) / most
            total = np.int32(0)
            for n in range(BLOCK):
                number = np.int16(bits_of(np.float32(own[n] * factor + TO_INTEGER)))
                value[n] = number
                total += np.int32(number)
            to.scale[r, block], to.total[r, block] = scale, scale * np.float32(total)


def quantise(x: Array, width: int, first: int, last: int, to: Any) -> None:
    """Rows first..last of x [R, ≥ D] to integers, each number to the nearest one; for compiled code.

    A row that holds NaN or infinity gives results that are not finite.
    """
    raise AssertionError("for compiled code")


_KINDS: dict[type | None, Any] = {
    Digits: _to_digits,
    Blocks: _to_blocks,
    Words: _to_words,
    WordBlocks: _to_word_blocks,
}
chosen_by_types(quantise, lambda x, width, first, last, to: _KINDS.get(class_of(to)))
