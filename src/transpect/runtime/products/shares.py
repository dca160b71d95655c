"""One thread's share of a product of a pass of few rows: by pairs of rows of weights, or, where that is quicker,
by eight rows of weights or of activations at a time, or by panels.

Axes: R rows, N out, D width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.numeric import Number
from transpect.runtime.products.abreast import ABREAST, abreast
from transpect.runtime.products.cpu import line
from transpect.runtime.products.eights import eight
from transpect.runtime.products.formats import Int8Rows, Words
from transpect.runtime.products.kernel import chosen_by_types, class_of, width
from transpect.runtime.products.pairs import pair
from transpect.runtime.products.panels import few
from transpect.runtime.products.tiles import COLUMNS

Array = Any
SCRATCH = 64
"""Room for the sums of one call of `pair`."""
ROWS = 8
"""How many rows are computed at a time, where there are more than four."""


@compiled
def border(n: int, part: int, parts: int) -> int:
    """Where a thread's share of N outputs begins: whole panels, for what writes them writes all of one."""
    panels = (n + COLUMNS - 1) // COLUMNS
    return min(n, COLUMNS * (part * panels // parts))


def share(w: Any, first: int, last: int, bias: Array, x: Any, rows: int, more: bool, out: Array) -> None:
    """out[:R, first : last] ← x·wᵀ + bias, or out + that for ``more``; an empty bias is none. For compiled code.

    Args:
        first, last: from `border`.
        x: with room for rows up to a multiple of eight.
        out: with room behind its columns.
    """
    raise AssertionError("for compiled code")


@compiled
def _begin(bias: Array, more: bool, out: Array, row: int, i: int) -> Number:
    begin = bias[i] if len(bias) else np.float32(0.0)
    return begin + out[row, i] if more else begin


@compiled
def _block(rows: int) -> int:
    """How many rows are computed at a time, where so many are left."""
    if rows == 1:
        return 1
    return ROWS if rows > ROWS // 2 else ROWS // 2


@compiled
def _by_pairs(w: Any, first: int, last: int, bias: Array, x: Any, rows: int, more: bool, out: Array) -> None:
    # rows that are read at one time are far apart: within a page memory would see one stream, and lose it
    half = (last - first + 1) // 2
    dots = np.empty(SCRATCH, np.float32)
    if rows == 1:  # without the loops below, which cost as much as they do
        for i in range(first, first + half):
            j = min(i + half, last - 1)
            pair(w, i, w, j, x, 0, 1, dots)
            second = _begin(bias, more, out, 0, j) + dots[1]
            out[0, i] = _begin(bias, more, out, 0, i) + dots[0]
            if i + half < last:
                out[0, j] = second
        return
    for i in range(first, first + half):
        j = min(i + half, last - 1)
        for start in range(0, rows, ROWS):
            block = _block(rows - start)
            pair(w, i, w, j, x, start, block, dots)
            for r in range(min(block, rows - start)):
                out[start + r, i] = _begin(bias, more, out, start + r, i) + dots[r]
                if i + half < last:
                    out[start + r, j] = _begin(bias, more, out, start + r, j) + dots[block + r]


def _of_integers(w: Any, first: int, last: int, bias: Array, x: Any, rows: int, more: bool, out: Array) -> None:
    if rows <= ROWS // 2:  # which memory limits: pairs are read from two places
        _by_pairs(w, first, last, bias, x, rows, more, out)
        return
    if rows <= ROWS:  # which don't make up for bringing weights to panels
        _begin_all(first, last, bias, rows, more, out)
        eight(w, first, last, x, out)
        return
    room = np.empty(COLUMNS * (width(w) // 4 + 64), np.float32)
    for i in range(first, last, COLUMNS):  # what a tile adds to is in the cache
        end = min(i + COLUMNS, last)
        _begin_all(i, end, bias, rows, more, out)
        few(w, i, end, x, rows, room, out)


@compiled
def _begin_all(first: int, last: int, bias: Array, rows: int, more: bool, out: Array) -> None:
    if len(bias) or not more:
        for r in range(rows):
            for i in range(first, last):
                out[r, i] = _begin(bias, more, out, r, i)


def _of_nibbles(w: Any, first: int, last: int, bias: Array, x: Any, rows: int, more: bool, out: Array) -> None:
    _begin_all(first, last, bias, rows, more, out)
    abreast(w, first, last, x, rows, out)


def _of_others(w: Any, first: int, last: int, bias: Array, x: Any, rows: int, more: bool, out: Array) -> None:
    _by_pairs(w, first, last, bias, x, rows, more, out)


def _chosen(w: Any, first: Any, last: Any, bias: Any, x: Any, rows: Any, more: Any, out: Any) -> Any:
    if class_of(w) in ABREAST:
        return _of_nibbles
    vectors = line().wide is not None
    return _of_integers if vectors and (class_of(w), class_of(x)) == (Int8Rows, Words) else _of_others


chosen_by_types(share, _chosen)
