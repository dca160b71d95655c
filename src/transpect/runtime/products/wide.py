"""Weights in 8 bits with rows in 16, where a CPU has no products of bytes that are quicker: exact sums of integers, one
rounding at the end.

Axes: R rows, D width.

Weights are widened once for all rows, and two products of 16-bit numbers are summed into each 32-bit lane. Of the
largest numbers a lane holds 255; before that it is added to a double, which holds all of them.
"""

from __future__ import annotations

from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line
from transpect.runtime.products.emit import DOUBLE, FLOAT, I8, I16, I32, I64, vector

STEP = 16
"""Columns of a vector of 16-bit numbers."""
WHOLE = 128 * STEP
"""Columns that 32-bit lanes hold the sums of."""
AHEAD = 1024
"""How many bytes ahead weights are asked for where several rows keep the loop busy."""


def emit_words(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[:R] ← w · x, second[:R] ← v · x, where R is ``rows``: see `kernel_of`."""
    w, w_scale, _, v, v_scale, _, value, scale, _, stride, width, out, second = args
    assert line.wide is not None
    wide, weights = line.wide, [w, v]
    inputs = [builder.add(value, builder.mul(builder.shl(stride, I64(1)), I64(r))) for r in range(rows)]
    whole = builder.and_(width, I64(-STEP))

    def more(read: list[Any], column: Any, now: list[Any]) -> list[Any]:
        own = [builder.sext(each, vector(I16, STEP)) for each in read]
        following = list(now)
        for r, base in enumerate(inputs):
            x = emit.load(builder, vector(I16, STEP), builder.add(base, builder.shl(column, I64(1))))
            for n in (r, rows + r):
                following[n] = wide(builder, now[n], own[n // rows], x)
        return following

    def columns(column: Any, now: list[Any]) -> list[Any]:
        places = [builder.add(base, column) for base in weights]
        if rows > 1:
            for place in places:
                emit.prefetch(builder, place, AHEAD)
        return more([emit.load(builder, vector(I8, STEP), place) for place in places], column, now)

    def last(column: Any, now: list[Any]) -> list[Any]:
        left = builder.sub(width, column)
        return more([emit.partly(builder, builder.add(base, column), left, STEP) for base in weights], column, now)

    zeros = [emit.ones(I32, STEP // 2, 0)] * (2 * rows)

    def part(first: Any, now: list[Any]) -> list[Any]:
        further = builder.add(first, I64(WHOLE))
        end = builder.select(builder.icmp_signed("<", further, whole), further, whole)
        sums = emit.loop(builder, first, end, STEP, zeros, columns)
        return [emit.plus(builder, total, _doubles(builder, own)) for total, own in zip(now, sums, strict=True)]

    begin = emit.loop(builder, whole, width, STEP, zeros, last)
    totals = emit.loop(builder, I64(0), whole, WHOLE, [_doubles(builder, own) for own in begin], part)
    exact = emit.sums(builder, totals)
    of_weight = emit.gathered(builder, [emit.load(builder, FLOAT, place) for place in (w_scale, v_scale)])
    of_x = emit.load(builder, vector(FLOAT, rows), scale)
    both = vector(DOUBLE, 2 * rows)
    factor = emit.times(
        builder,
        builder.fpext(emit.repeated(builder, of_weight, rows), both),
        builder.fpext(emit.joined(builder, [of_x, of_x]), both),
    )
    results = builder.fptrunc(emit.times(builder, exact, factor), vector(FLOAT, 2 * rows))
    for place, own in zip((out, second), emit.halves(builder, results), strict=True):
        emit.store(builder, own, place)


def _doubles(builder: Any, sums: Any) -> Any:
    """Sums of half as many lanes."""
    parts = emit.halves(builder, sums)
    return emit.plus(builder, *(builder.sitofp(part, vector(DOUBLE, part.type.count)) for part in parts))
