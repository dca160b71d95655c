"""`pair` of each format of weights with what it computes with."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from transpect.runtime.numeric import widen
from transpect.runtime.products import floats, plain
from transpect.runtime.products.blocks import emit_blocks
from transpect.runtime.products.codes import CODES, TOGETHER
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.digits import emit_digits
from transpect.runtime.products.formats import BLOCK, Blocks, Digits, Int8Rows, Words
from transpect.runtime.products.kernel import Emit, address, addresses, chosen_by_types, class_of, kernel_of, width
from transpect.runtime.products.wide import emit_words

Array = Any
Pairs = dict[tuple[type | None, type | None], Any]


def pair(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    """out[:R] ← w[i] · x[start : start + R], out[R : 2·R] ← v[j] · the same, for R = 1, 4 or 8; for compiled code."""
    raise AssertionError("for compiled code")


_BYTES = 4
"""Of a float32."""


def with_vectors(name: str, emit: Emit, line: Line, size: int = 1, times: int = 1) -> Any:
    """`pair` of a format by what emits its code, whose rows are ``times`` as long for each ``size`` of an array."""
    one, four = kernel_of(name, emit, line, 1), kernel_of(name, emit, line, 4)

    def made(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
        weights, lengths = (*addresses(w, i), *addresses(v, j)), (width(x), width(w) // size * times)
        to, second = address(out, 0), address(out, rows)
        if rows == 1:
            one((*weights, *addresses(x, start), *lengths, to, second))
            return
        for r in range(0, rows, 4):
            four((*weights, *addresses(x, start + r), *lengths, to + _BYTES * r, second + _BYTES * r))

    return made


def _floats(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    floats.pair(w, i, v, j, x, start, rows, out)


def pairs_of(line: Line) -> Pairs:
    """`pair` by the classes of the weights and of x; None is an array."""
    if not line.width:
        of_blocks: Pairs = {(kind, Blocks): plain.in_blocks for kind in CODES}
        return {(None, None): _floats, (Int8Rows, Words): plain.int8_rows, **of_blocks}
    of_blocks = {
        (kind, Blocks): with_vectors(kind.__name__, partial(emit_blocks, code), line, code.size, code.times)
        for kind, code in CODES.items()
    }
    rows, emitted = (Digits, emit_digits) if line.wide is None else (Words, emit_words)
    return {(None, None): _floats, (Int8Rows, rows): with_vectors(Int8Rows.__name__, emitted, line), **of_blocks}


_CHOICES = pairs_of(line())
chosen_by_types(pair, lambda w, i, v, j, x, start, rows, out: _CHOICES.get((class_of(w), class_of(x))))


def width_of(weight: Any) -> int:
    """D, of packed weights or an array."""
    if isinstance(weight, Int8Rows):
        return int(weight.weight.shape[1])
    code = CODES.get(type(weight))
    return int(weight.shape[1] if code is None else weight[0].shape[1] // code.size * code.times * BLOCK)


def restore(w: Any, i: int, factor: Any, out: Array) -> None:
    """out ← factor · w[i], [D]: a row of a table; for compiled code."""
    raise AssertionError("for compiled code")


def _restore_floats(w: Any, i: int, factor: Any, out: Array) -> None:
    for d in range(w.shape[1]):
        out[d] = factor * widen(w[i, d])


def _restore_int8(w: Any, i: int, factor: Any, out: Array) -> None:
    for d in range(w.weight.shape[1]):
        out[d] = factor * w.scale[i] * np.float32(w.weight[i, d])


_TABLES: dict[type | None, Any] = {None: _restore_floats, Int8Rows: _restore_int8}
chosen_by_types(restore, lambda w, i, factor, out: _TABLES.get(class_of(w)))


def activations(weight: Any, rows: int) -> Digits | Words | Blocks | None:
    """Room for what a format computes with, for so many rows (a multiple of eight); None: float32 rows as they are.

    Raises:
        ConfigError: a width that is not whole blocks, or too many columns.
    """
    if isinstance(weight, Int8Rows):
        kind = Words if (Int8Rows, Words) in _CHOICES else Digits
        return kind.of(rows, weight.weight.shape[1])
    code = CODES.get(type(weight))
    if code is None:
        return None
    columns = width_of(weight)
    together = TOGETHER if line().width > BLOCK else 1
    return Blocks.of(rows, columns, apart=code.apart, together=together)
