"""Weights in 8 bits with eight rows in 16, for the lines of `wide`: eight sums at a time stay in registers, and what
they come to is written by vectors.

Axes: R rows (eight), C rows of weights (eight), D width.

A row of weights is widened once for all R rows. More sums would leave no register for what is loaded.
"""

from __future__ import annotations

from typing import Any

from transpect.runtime.compiling import compiled
from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.emit import DOUBLE, FLOAT, I64, vector
from transpect.runtime.products.kernel import address
from transpect.runtime.products.tiles import tile_of
from transpect.runtime.products.wide import LANES, across, sums_of

Array = Any
EIGHT = LANES
"""R and C: as many as there are lanes, so that a vector holds a number of each."""
QUARTER = 4
"""Floats of 128 bits, which shuffles don't cross."""


def emit_eight(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[r, c] += scale[r] · scale[c] · Σ_d x[r, d] · w[c, d], of integers and rounded once, for ``count`` rows of
    weights, at most C; nothing is added to the columns after them. The steps from one row to the next are in bytes."""
    w, of_w, w_scale, count, x, of_x, x_scale, width, out, of_out = args
    inputs = [builder.add(x, builder.mul(of_x, I64(r))) for r in range(EIGHT)]
    wide, last = vector(DOUBLE, EIGHT), builder.sub(count, I64(1))
    of_rows = builder.fpext(emit.load(builder, vector(FLOAT, EIGHT), x_scale), wide)
    room = emit.room(builder, FLOAT, EIGHT * EIGHT)

    def weight(at: Any, now: list[Any]) -> list[Any]:
        there = builder.icmp_signed("<", at, count)
        own = builder.select(there, at, last)
        scale = emit.load(builder, FLOAT, builder.add(w_scale, builder.mul(own, I64(4))))
        scale = builder.fpext(builder.select(there, scale, FLOAT(0.0)), DOUBLE)
        place = builder.add(w, builder.mul(of_w, own))
        total = across(builder, sums_of(builder, line, [place], inputs, width, ahead=True))
        factor = emit.times(builder, emit.spread(builder, scale, EIGHT), of_rows)
        result = builder.fptrunc(emit.times(builder, builder.sitofp(total, wide), factor), vector(FLOAT, EIGHT))
        emit.store(builder, result, builder.add(room, builder.mul(at, I64(4 * EIGHT))))
        return []

    emit.loop(builder, I64(0), I64(EIGHT), 1, [], weight)
    for first in range(0, EIGHT, QUARTER):  # of what is [C, R] the transpose
        parts = []
        for n in range(QUARTER):
            pair = [builder.add(room, I64(4 * (EIGHT * c + first))) for c in (n, n + QUARTER)]
            parts.append(emit.joined(builder, [emit.load(builder, vector(FLOAT, QUARTER), own) for own in pair]))
        for n, own in enumerate(emit.turned(builder, parts)):
            place = builder.add(out, builder.mul(of_out, I64(first + n)))
            emit.store(builder, emit.plus(builder, emit.load(builder, own.type, place), own), place)


eight_rows = tile_of("eight", emit_eight, 10, line(), EIGHT)


@compiled
def eight(w: Any, first: int, last: int, x: Any, out: Array) -> None:
    """out[:R, first : last] += x[:R] · w[first : last]ᵀ of `Int8Rows` and `Words`."""
    width, of_out = w.weight.shape[1], 4 * out.shape[1]
    weights, scales, to = address(w.weight, 0), address(w.scale, 0), address(out, 0)
    rows = address(x.value, 0), 2 * x.value.shape[1], address(x.scale, 0)
    for i in range(first, last, EIGHT):
        own = weights + width * i, width, scales + 4 * i, min(EIGHT, last - i)
        eight_rows((*own, *rows, width, to + 4 * i, of_out))
