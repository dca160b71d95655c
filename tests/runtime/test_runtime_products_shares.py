"""Shares of a product are the product: every kind of weights, number of rows and of threads, bias, and what was there;
a row gets the same whatever is beside it, and integers give exact sums, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transpect.runtime.compiling import compiled
from transpect.runtime.products import Int8Rows, Words, activations, border, quantise, share
from transpect.runtime.products.tiles import COLUMNS

Array = Any
ROOM = 40
"""Rows that there is room for."""


@compiled
def product(w: Any, n: int, parts: int, bias: Array, x: Any, rows: int, more: bool, out: Array) -> None:
    for part in range(parts):
        share(w, border(n, part, parts), border(n, part + 1, parts), bias, x, rows, more, out)


@compiled
def to_integers(x: Array, width: int, rows: int, to: Any) -> None:
    quantise(x, width, 0, rows, to)


@pytest.mark.parametrize("kind", ["int8", "float32"])
@pytest.mark.parametrize(("n", "width"), [(1, 1), (COLUMNS, 33), (3 * COLUMNS + 5, 600), (2 * COLUMNS - 1, 1025)])
def test_shares(kind: str, n: int, width: int) -> None:
    generator = np.random.default_rng(n)
    x = generator.standard_normal((ROOM, width + 32)).astype(np.float32)
    if kind == "int8":
        weight = generator.integers(-128, 128, (n, width), dtype=np.int8)
        w: Any = Int8Rows.of(weight, generator.random(n, np.float32))
        exact = weight * w.scale[:, None].astype(np.float64)
    else:
        w = generator.standard_normal((n, width)).astype(np.float32)
        exact = w.astype(np.float64)
    expected, bias = x[:, :width].astype(np.float64) @ exact.T, generator.standard_normal(n).astype(np.float32)
    before = generator.standard_normal((ROOM, n + 32)).astype(np.float32)
    alone = dict[bool, Array]()
    for rows in (1, 3, 4, 7, 8, 9, 13, 32):
        to = activations(w, ROOM)
        if to is None:
            own: Any = x
        else:
            own = to
            to_integers(x, width, rows, own)
        for more in (False, True):
            for parts in (1, 2, 5):
                out = before.copy()
                product(w, n, parts, bias, own, rows, more, out)
                wanted = expected[:rows] + bias + (before[:rows, :n] if more else 0)
                size = 1 + abs(x[:rows, :width]).astype(np.float64) @ abs(exact.T)
                assert (abs(out[:rows, :n] - wanted) <= 1e-4 * size).all()
                assert np.array_equal(out[:rows, n:], before[:rows, n:])
                assert np.array_equal(out[0, :n], alone.setdefault(more, out[0, :n].copy()))


@pytest.mark.parametrize(("n", "width"), [(1, 1), (COLUMNS + 7, 31), (2 * COLUMNS + 1, 146), (COLUMNS - 2, 1025)])
def test_integers_are_exact(n: int, width: int) -> None:
    """Of each number of rows that a pass has; the largest sums too, which are just within 32 bits."""
    generator = np.random.default_rng(width)
    weight = generator.integers(-128, 128, (n, width), dtype=np.int8)
    weight[0], weight[-1, ::2], weight[-1, 1::2] = -128, 127, -128
    w, x = Int8Rows.of(weight, generator.random(n, np.float32)), generator.standard_normal((ROOM, width + 32))
    x[0], x[1], x[2, ::2], x[2, 1::2], x[3] = -1, 1, 1, -1, 0
    bias, own = generator.standard_normal(n).astype(np.float32), activations(w, ROOM)
    assert own is not None
    to_integers(x.astype(np.float32), width, ROOM, own)
    values = own.value if isinstance(own, Words) else 256 * own.high.astype(np.int64) + own.low - 32768
    exact = values[:, :width].astype(np.int64) @ weight.T.astype(np.int64)
    expected = (exact * (w.scale.astype(np.float64) * own.scale[:, None])).astype(np.float32) + bias
    for rows in range(1, 33):
        out = np.zeros((ROOM, n + 32), np.float32)
        product(w, n, 2, bias, own, rows, False, out)
        assert np.array_equal(out[:rows, :n], expected[:rows]), rows
        assert not out[:, n:].any()


def test_borders() -> None:
    for n in (1, COLUMNS, 5 * COLUMNS - 1, 49152):
        for parts in (1, 2, 3, 8):
            found = [border(n, part, parts) for part in range(parts + 1)]
            assert found[0] == 0 and found[-1] == n and found == sorted(found)
            assert all(own % COLUMNS == 0 for own in found[:-1] if own < n)
