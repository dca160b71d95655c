"""Weights in 8 bits with rows in 16: exact sums of integers, one rounding at the end.

Axes: R rows, D width.

With u = 256·high + low of a row of x, Σ w·(u − 32768) = 256·Σ w·high + Σ w·low − 32768·Σ w: two sums of products of
bytes, and a number that belongs to the weights.
"""

from __future__ import annotations

from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line
from transpect.runtime.products.emit import DOUBLE, FLOAT, I8, I32, I64, vector

AHEAD = 1024
"""How many bytes ahead weights are asked for where several rows keep the loop busy."""


def emit_digits(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[:R] ← w · x, second[:R] ← v · x, where R is ``rows``: see `kernel_of`."""
    w, w_scale, w_total, v, v_scale, v_total, high, low, scale, stride, width, out, second = args
    step = line.width
    weights = [w, v]
    inputs = [builder.add(base, builder.mul(stride, I64(r))) for base in (high, low) for r in range(rows)]
    whole = builder.and_(width, I64(-step))

    def more(read: list[Any], column: Any, now: list[Any]) -> list[Any]:
        digit = [emit.load(builder, vector(I8, step), builder.add(base, column)) for base in inputs]
        following = []
        for n, total in enumerate(now):  # by digit, then by weight, then by row
            which, weight = n // (2 * rows), n // rows % 2
            own = digit[which * rows + n % rows]
            following.append(line.dot(builder, total, own, read[weight], False))
        return following

    def columns(column: Any, now: list[Any]) -> list[Any]:
        places = [builder.add(base, column) for base in weights]
        if rows > 1:
            for place in places:
                emit.prefetch(builder, place, AHEAD)
        return more([emit.load(builder, vector(I8, step), place) for place in places], column, now)

    zero = emit.ones(I32, step // 4, 0)
    totals = emit.loop(builder, I64(0), whole, step, [zero] * (4 * rows), columns)

    def last(column: Any, now: list[Any]) -> list[Any]:
        left = builder.sub(width, column)
        return more([emit.partly(builder, builder.add(base, column), left, step) for base in weights], column, now)

    totals = emit.loop(builder, whole, width, step, totals, last)

    wide = vector(DOUBLE, 2 * rows)
    both = emit.sums(builder, totals)
    of_high, of_low = (builder.sitofp(part, wide) for part in emit.halves(builder, both))
    offset = emit.repeated(builder, _both(builder, I32, w_total, v_total), rows)
    offset = emit.times(builder, builder.sitofp(offset, wide), emit.ones(DOUBLE, 2 * rows, 32768.0))
    exact = emit.plus(builder, emit.times(builder, of_high, emit.ones(DOUBLE, 2 * rows, 256.0)), of_low)
    exact = emit.minus(builder, exact, offset)
    of_weight = emit.repeated(builder, _both(builder, FLOAT, w_scale, v_scale), rows)
    of_x = emit.load(builder, vector(FLOAT, rows), scale)
    factor = emit.times(
        builder,
        builder.fpext(of_weight, wide),
        builder.fpext(emit.joined(builder, [of_x, of_x]), wide),
    )
    results = builder.fptrunc(emit.times(builder, exact, factor), vector(FLOAT, 2 * rows))
    for place, part in zip((out, second), emit.halves(builder, results), strict=True):
        emit.store(builder, part, place)


def _both(builder: Any, kind: Any, *places: Any) -> Any:
    return emit.gathered(builder, [emit.load(builder, kind, place) for place in places])
