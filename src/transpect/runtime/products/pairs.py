"""`pair` of each format of weights with what it computes with."""

from __future__ import annotations

from typing import Any

from transpect.runtime.products import floats
from transpect.runtime.products.cpu import line
from transpect.runtime.products.digits import digits
from transpect.runtime.products.formats import Digits, Int8Rows
from transpect.runtime.products.kernel import address, chosen_by_types, class_of

Array = Any


def pair(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    """out[:R] ← w[i] · x[start : start + R], out[R : 2·R] ← v[j] · the same, for R = 1, 4 or 8; for compiled code."""
    raise NotImplementedError("for compiled code")


_digits_1, _digits_4 = digits(line(), 1), digits(line(), 4)
_BYTES = 4
"""Of a float32."""


def _int8_rows(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    weights = address(w.weight, i), address(v.weight, j)
    shape, numbers = (x.high.shape[1], w.weight.shape[1]), (w.scale[i], v.scale[j], w.total[i], v.total[j])
    to, second = address(out, 0), address(out, rows)
    if rows == 1:
        inputs = address(x.high, start), address(x.low, start)
        _digits_1((*weights, *inputs, *shape, address(x.scale, start), *numbers, to, second))
        return
    for r in range(0, rows, 4):
        inputs = address(x.high, start + r), address(x.low, start + r)
        more = _BYTES * r
        _digits_4((*weights, *inputs, *shape, address(x.scale, start + r), *numbers, to + more, second + more))


def _floats(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    floats.pair(w, i, v, j, x, start, rows, out)


_KINDS: dict[tuple[type | None, type | None], Any] = {(Int8Rows, Digits): _int8_rows, (None, None): _floats}
chosen_by_types(pair, lambda w, i, v, j, x, start, rows, out: _KINDS.get((class_of(w), class_of(x))))
