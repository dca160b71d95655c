"""Products with many rows at a time: a tile of sums, some rows of weights by some vectors of rows, stays in registers.

Axes: R rows, N outputs, D width.

`pair` sums along a row of weights, so each result costs a sum over lanes besides its products: with many rows and
narrow layers that takes longer than they do. Here a vector holds one column of x for several rows, each weight is
spread over a vector, and no lanes are left to be summed. For this a piece of x is turned first, [R, D] -> [D, R], which
all outputs share. The order of the sums is that of the columns.

Source: Goto and van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication", §4 (here x is what is packed,
and weights are read as they lie).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types
from numba.extending import register_jitable as _untyped_register

from transpect.runtime.compiling import OPTIONS, intrinsic
from transpect.runtime.numeric import widen
from transpect.runtime.products.cpu import line
from transpect.runtime.products.emit import (
    FLOAT,
    I32,
    I64,
    fma,
    halves,
    lanes_of,
    load,
    loop,
    ones,
    plus,
    spread,
    store,
    vector,
)
from transpect.runtime.products.kernel import address, chosen_by_types, class_of

Array = Any
_register: Any = _untyped_register
LANES = (line().width or 16) // 4
"""Rows of a vector."""
MANY = max(5, LANES // 2 + 1)
"""Rows from which on tiles are quicker than `pair`: with fewer a vector is half empty. A sum is taken in one order
below, in another one from here on, and in each whatever else is in the batch."""
FOUR, EIGHT = 4, 8
"""Rows of weights of a tile with two vectors, and with one: eight sums, as many as a CPU works at in one go."""
ROOM = 8192
"""Numbers of x that are turned at a time: they stay in the nearest cache."""
_BYTES = 4


def columns_of(lanes: int) -> Callable[[Array, int, int, Array, int, Array], None]:
    """`add_products` with vectors of so many numbers, a multiple of four; for compiled code."""
    narrow, wide, turn = _tile(lanes, EIGHT, 1), _tile(lanes, FOUR, 2), _turn(lanes)

    @_inner
    def fill(x: Array, begin: int, end: int, rows: int, panel: Array) -> None:
        """panel[d − begin, r] ← x[r, d], [end − begin, R], for rows in whole vectors."""
        far, columns = x.strides[0], end - begin
        start = address(x, 0) + _BYTES * begin
        for r in range(0, rows, FOUR):
            turn(start + r * far, far, address(panel, 0) + _BYTES * r, rows, columns)
        for d in range(columns - columns % lanes, columns):
            for r in range(rows):
                panel[d * rows + r] = x[r, begin + d]

    def add(w: Array, first: int, last: int, x: Array, rows: int, out: Array) -> None:
        whole, width = (rows + lanes - 1) // lanes * lanes, w.shape[1]
        even = width - width % 2 if w.itemsize < _BYTES else width
        deep = ROOM // whole // lanes * lanes
        panel = np.empty(deep * whole, np.float32)
        apart, far = w.strides[0], out.strides[0]
        for begin in range(0, even, deep):
            columns = min(deep, even - begin)
            fill(x, begin, begin + columns, whole, panel)
            start = address(panel, 0)
            for i in range(first, last, EIGHT):
                own, to = address(w, i) + w.itemsize * begin, address(out, 0) + _BYTES * i
                for r in range(0, whole - lanes, 2 * lanes):
                    piece, there = start + _BYTES * r, to + far * r
                    wide(w, own, apart, piece, whole, columns, there, far)
                    wide(w, own + FOUR * apart, apart, piece, whole, columns, there + FOUR * _BYTES, far)
                if whole % (2 * lanes):
                    r = whole - lanes
                    narrow(w, own, apart, start + _BYTES * r, whole, columns, to + far * r, far)
        if even < width:
            for r in range(rows):
                for i in range(first, last):
                    out[r, i] += widen(w[i, even]) * x[r, even]

    return add


def _inner(function: Callable[..., Any]) -> Any:
    return _register(**OPTIONS)(function)


def _tile(lanes: int, weights: int, vectors: int) -> Any:
    def tile(
        context: Any, stored: Any, w: Any, apart: Any, panel: Any, rows: Any, columns: Any, out: Any, far: Any
    ) -> Any:
        """out[r, i] += Σ_d w[i, d] · panel[d, r] for some rows of weights and some vectors of rows.

        Args:
            stored: an array of the weights' dtype, for its type.
            w: the address of the first weight.
            apart: bytes from one row of weights to the next.
            panel: address of the first column of x.
            rows: how many numbers there are from one column to the next.
            columns: how many; even where weights have 16 bits.
            out: address of the first result.
            far: bytes from one row of results to the next.
        """
        size = 2 if stored.dtype == types.uint16 else _BYTES

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit_tile(builder, lanes, weights, vectors, size, args[1:])
            return context.get_dummy_value()

        return types.void(stored, *[types.int64] * 7), emit

    return intrinsic(tile)


def _emit_tile(builder: Any, lanes: int, weights: int, vectors: int, size: int, args: Sequence[Any]) -> None:
    w, apart, panel, rows, columns, out, far = args
    kind, step = vector(FLOAT, lanes), _BYTES // size
    bases = [builder.add(w, builder.mul(apart, I64(n))) for n in range(weights)]
    pitch = builder.mul(rows, I64(_BYTES))

    def body(column: Any, sums: list[Any]) -> list[Any]:
        own = [_spread(builder, builder.add(base, builder.mul(column, I64(size))), size, lanes) for base in bases]
        for part in range(step):
            place = builder.add(panel, builder.mul(builder.add(column, I64(part)), pitch))
            x = [load(builder, kind, place, _BYTES * lanes * v) for v in range(vectors)]
            sums = [fma(builder, own[n // vectors][part], x[n % vectors], total) for n, total in enumerate(sums)]
        return sums

    sums = loop(builder, I64(0), columns, step, [ones(FLOAT, lanes, 0.0)] * (weights * vectors), body)
    for first in range(0, weights, FOUR):
        for v in range(vectors):
            four = [sums[n * vectors + v] for n in range(first, first + FOUR)]
            for row, own in enumerate(_turned(builder, four)):
                place = builder.add(out, builder.mul(far, I64(lanes * v + row)))
                place = builder.add(place, I64(_BYTES * first))
                store(builder, plus(builder, own, load(builder, vector(FLOAT, FOUR), place)), place)


def _spread(builder: Any, place: Any, size: int, lanes: int) -> list[Any]:
    """The weight at an address in all lanes; of weights of 16 bits that one and the next."""
    if size == _BYTES:
        return [spread(builder, load(builder, FLOAT, place), lanes)]
    both = spread(builder, load(builder, I32, place), lanes)
    parts = builder.shl(both, ones(I32, lanes, 16)), builder.and_(both, ones(I32, lanes, -(1 << 16)))
    return [builder.bitcast(part, vector(FLOAT, lanes)) for part in parts]


def _turn(lanes: int) -> Any:
    def turn(context: Any, x: Any, far: Any, panel: Any, rows: Any, columns: Any) -> Any:
        """panel[d, r] ← x[r, d] for four rows, but for the last D mod lanes columns; x and panel are addresses."""

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit_turn(builder, lanes, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return intrinsic(turn)


def _emit_turn(builder: Any, lanes: int, args: Sequence[Any]) -> None:
    x, far, panel, rows, columns = args
    pitch, kind = builder.mul(rows, I64(_BYTES)), vector(FLOAT, lanes)

    def body(column: Any, _: list[Any]) -> list[Any]:
        place = builder.add(x, builder.mul(column, I64(_BYTES)))
        four = [load(builder, kind, builder.add(place, builder.mul(far, I64(n)))) for n in range(FOUR)]
        to = builder.add(panel, builder.mul(column, pitch))
        for lane, own in enumerate(_turned(builder, four)):
            store(builder, own, builder.add(to, builder.mul(pitch, I64(lane))))
        return []

    loop(builder, I64(0), builder.and_(columns, I64(-lanes)), lanes, [], body)


def _turned(builder: Any, four: Sequence[Any]) -> list[Any]:
    """Four vectors as one of four numbers for each lane, by two steps that stay within every four lanes."""
    lanes = four[0].type.count

    def mixed(a: Any, b: Any, *places: int) -> Any:
        """Of every four lanes of a those in places under 4, of b those from 4 on."""
        chosen = (start + n + (n >= FOUR) * (lanes - FOUR) for start in range(0, lanes, FOUR) for n in places)
        return builder.shuffle_vector(a, b, lanes_of(chosen))

    low = [mixed(a, b, 0, 4, 1, 5) for a, b in (four[:2], four[2:])]
    high = [mixed(a, b, 2, 6, 3, 7) for a, b in (four[:2], four[2:])]
    whole = [mixed(*pair, *places) for pair in (low, high) for places in ((0, 1, 4, 5), (2, 3, 6, 7))]
    parts = [_fours(builder, own) for own in whole]  # part p of vector n is of lane 4·p + n
    return [parts[lane % FOUR][lane // FOUR] for lane in range(lanes)]


def _fours(builder: Any, whole: Any) -> list[Any]:
    if whole.type.count == FOUR:
        return [whole]
    return [part for half in halves(builder, whole) for part in _fours(builder, half)]


def add_products(w: Any, first: int, last: int, x: Any, rows: int, out: Array) -> None:
    """out[:R, first:last] += x[:R] · w[first:last]ᵀ for weights and counts that `by_columns` names; for compiled code.

    Rows of x and out up to a multiple of `LANES` are read and written: there are such, whatever they hold.
    """
    raise AssertionError("for compiled code")


def by_columns(w: Any, rows: int, count: int) -> int:
    """How many of so many outputs are computed by tiles, for compiled code: those in whole eights, and none of weights
    in a format or of fewer rows than `MANY`."""
    raise AssertionError("for compiled code")


def _whole_eights(w: Any, rows: int, count: int) -> int:
    return count // EIGHT * EIGHT if rows >= MANY else 0


def _no_tiles(w: Any, rows: int, count: int) -> int:
    return 0


def _no_products(w: Any, first: int, last: int, x: Any, rows: int, out: Array) -> None:
    pass


_FLOATS = columns_of(LANES)
chosen_by_types(by_columns, lambda w, rows, count: _no_tiles if class_of(w) else _whole_eights)
chosen_by_types(add_products, lambda w, first, last, x, rows, out: _no_products if class_of(w) else _FLOATS)
