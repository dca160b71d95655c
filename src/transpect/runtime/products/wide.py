"""Weights in 8 bits with rows in 16, where a CPU has no products of bytes that are quicker: exact sums of integers, one
rounding at the end.

Axes: R rows, D width.

Weights are widened once for all rows, and two products of 16-bit numbers are summed into each 32-bit lane. Whole sums
have 32 bits too: see `quantising`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line
from transpect.runtime.products.emit import DOUBLE, FLOAT, I8, I16, I32, I64, vector

STEP = 16
"""Columns of a vector of 16-bit numbers."""
LANES = 8
"""Sums that a call has at most, and those in a vector."""
AHEAD = 1024
"""How many bytes ahead weights are asked for where several rows keep the loop busy."""


def emit_words(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[:R] ← w · x, second[:R] ← v · x, where R is ``rows``: see `kernel_of`."""
    w, w_scale, _, v, v_scale, _, value, scale, _, stride, width, out, second = args
    inputs = [builder.add(value, builder.mul(builder.shl(stride, I64(1)), I64(r))) for r in range(rows)]
    sums = sums_of(builder, line, [w, v], inputs, width, ahead=rows > 1)
    totals = across(builder, [*sums, *[emit.ones(I32, LANES, 0)] * (LANES - 2 * rows)])
    of_weight = emit.gathered(builder, [emit.load(builder, FLOAT, place) for place in (w_scale, v_scale)])
    of_x = emit.load(builder, vector(FLOAT, rows), scale)
    both = vector(DOUBLE, 2 * rows)
    factor = emit.times(
        builder,
        builder.fpext(emit.repeated(builder, of_weight, rows), both),
        builder.fpext(emit.joined(builder, [of_x, of_x]), both),
    )
    exact = builder.sitofp(builder.shuffle_vector(totals, totals, emit.lanes_of(range(2 * rows))), both)
    results = builder.fptrunc(emit.times(builder, exact, factor), vector(FLOAT, 2 * rows))
    for place, own in zip((out, second), emit.halves(builder, results), strict=True):
        emit.store(builder, own, place)


def sums_of(
    builder: Any, line: Line, weights: Sequence[Any], inputs: Sequence[Any], width: Any, *, ahead: bool
) -> list[Any]:
    """Σ_d x[r, d] · w[d] in the lanes of a vector each, by weight and then by row; weights are asked for ``ahead``."""
    assert line.wide is not None
    wide, rows = line.wide, len(inputs)

    def more(read: list[Any], column: Any, now: list[Any]) -> list[Any]:
        own = [builder.sext(each, vector(I16, STEP)) for each in read]
        x = [emit.load(builder, vector(I16, STEP), builder.add(base, builder.shl(column, I64(1)))) for base in inputs]
        return [wide(builder, total, own[n // rows], x[n % rows]) for n, total in enumerate(now)]

    def columns(column: Any, now: list[Any]) -> list[Any]:
        places = [builder.add(base, column) for base in weights]
        if ahead:
            for place in places:
                emit.prefetch(builder, place, AHEAD)
        return more([emit.load(builder, vector(I8, STEP), place) for place in places], column, now)

    def last(column: Any, now: list[Any]) -> list[Any]:
        left = builder.sub(width, column)
        return more([emit.partly(builder, builder.add(base, column), left, STEP) for base in weights], column, now)

    zero, whole = emit.ones(I32, LANES, 0), builder.and_(width, I64(-STEP))
    sums = emit.loop(builder, I64(0), whole, STEP, [zero] * (len(weights) * rows), columns)
    return emit.loop(builder, whole, width, STEP, sums, last)


def across(builder: Any, sums: Sequence[Any]) -> Any:
    """The sum of each of eight vectors' lanes: [8 × 8] -> 8, by what stays within 128 bits as long as may be."""
    steps = (
        ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)),
        ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
        ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
    )
    for step in steps:
        pairs = list(zip(sums[::2], sums[1::2], strict=True))
        parts = [[builder.shuffle_vector(a, b, emit.lanes_of(places)) for places in step] for a, b in pairs]
        sums = [builder.add(*part) for part in parts]
    return sums[0]
