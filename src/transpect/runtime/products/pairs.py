"""`pair` of each format of weights with what it computes with."""

from __future__ import annotations

from typing import Any

from transpect.runtime.products import floats, plain
from transpect.runtime.products.blocks import blocks
from transpect.runtime.products.codes import CODES, TOGETHER, Code
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.digits import digits
from transpect.runtime.products.formats import BLOCK, Blocks, Digits, Int8Rows
from transpect.runtime.products.kernel import address, addresses, chosen_by_types, class_of

Array = Any
Pairs = dict[tuple[type | None, type | None], Any]


def pair(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    """out[:R] ← w[i] · x[start : start + R], out[R : 2·R] ← v[j] · the same, for R = 1, 4 or 8; for compiled code."""
    raise NotImplementedError("for compiled code")


_BYTES = 4
"""Of a float32."""


def int8_rows(line: Line) -> Any:
    """`pair` of `Int8Rows` with `Digits` on a line that has vectors."""
    one, four = digits(line, 1), digits(line, 4)

    def made(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
        weights = address(w.weight, i), address(v.weight, j)
        shape, numbers = (x.high.shape[1], w.weight.shape[1]), (w.scale[i], v.scale[j], w.total[i], v.total[j])
        to, second = address(out, 0), address(out, rows)
        if rows == 1:
            inputs = address(x.high, start), address(x.low, start)
            one((*weights, *inputs, *shape, address(x.scale, start), *numbers, to, second))
            return
        for r in range(0, rows, 4):
            inputs = address(x.high, start + r), address(x.low, start + r)
            places = to + _BYTES * r, second + _BYTES * r
            four((*weights, *inputs, *shape, address(x.scale, start + r), *numbers, *places))

    return made


def in_blocks(code: Code, line: Line) -> Any:
    """`pair` of a format of blocks with `Blocks` on a line that has vectors."""
    one, four, bytes_of_block, columns = blocks(code, line, 1), blocks(code, line, 4), code.size, BLOCK * code.times

    def made(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
        weights, others = addresses(w, i), addresses(v, j)
        stride, count = x.value.shape[1], w[0].shape[1] // bytes_of_block * columns // BLOCK
        to, second = address(out, 0), address(out, rows)
        if rows == 1:
            inputs = address(x.value, start), address(x.scale, start), address(x.total, start)
            one((*weights, *others, *inputs, stride, count, to, second))
            return
        for r in range(0, rows, 4):
            inputs = address(x.value, start + r), address(x.scale, start + r), address(x.total, start + r)
            four((*weights, *others, *inputs, stride, count, to + _BYTES * r, second + _BYTES * r))

    return made


def _floats(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    floats.pair(w, i, v, j, x, start, rows, out)


def pairs_of(line: Line) -> Pairs:
    """`pair` by the classes of the weights and of x; None is an array."""
    if not line.width:
        of_blocks: Pairs = {(kind, Blocks): plain.in_blocks for kind in CODES}
        return {(None, None): _floats, (Int8Rows, Digits): plain.int8_rows, **of_blocks}
    of_blocks = {(kind, Blocks): in_blocks(code, line) for kind, code in CODES.items()}
    return {(None, None): _floats, (Int8Rows, Digits): int8_rows(line), **of_blocks}


_CHOICES = pairs_of(line())
chosen_by_types(pair, lambda w, i, v, j, x, start, rows, out: _CHOICES.get((class_of(w), class_of(x))))


def activations(weight: Any, rows: int) -> Digits | Blocks | None:
    """Room for what a format computes with, for so many rows (a multiple of eight); None: float32 rows as they are.

    Raises:
        ConfigError: a width that is not whole blocks, or too many columns.
    """
    if isinstance(weight, Int8Rows):
        return Digits.of(rows, weight.weight.shape[1])
    code = CODES.get(type(weight))
    if code is None:
        return None
    width = weight[0].shape[1] // code.size * code.times * BLOCK
    together = TOGETHER if line().width > BLOCK else 1
    return Blocks.of(rows, width, apart=code.apart, together=together)
