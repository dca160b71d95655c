"""Weights in 8 bits with several rows in 16, for the lines of `wide`: eight sums at a time stay in registers, and what
they come to is written by vectors.

Axes: R rows (eight or four), C rows of weights, D width.

A row of weights is widened once for all R rows. Eight sums are one row of weights with eight rows of x, or two with
four: with fewer of them adding would wait for itself, and more leave no register for what is loaded.
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
ROWS, COUNT = 8, 8
"""R and C."""
WHILE = 16
"""Rows of weights that stay in a cache near by while all rows of x are multiplied with them."""
QUARTER = 4
"""Floats of 128 bits, which shuffles don't cross."""


def emit_several(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[r, c] += scale[r] · scale[c] · Σ_d x[r, d] · w[c, d], of integers and rounded once, for R rows and ``count``
    rows of weights, at most C; nothing is added to the columns after them. The steps from one row to the next are in
    bytes."""
    w, of_w, w_scale, count, x, of_x, x_scale, width, out, of_out = args
    together = LANES // rows
    inputs = [builder.add(x, builder.mul(of_x, I64(r))) for r in range(rows)]
    scales = builder.fpext(emit.load(builder, vector(FLOAT, rows), x_scale), vector(DOUBLE, rows))
    scales = emit.joined(builder, [scales] * together)
    last = builder.sub(count, I64(1))
    room = emit.room(builder, FLOAT, COUNT * rows)

    def some(at: Any, now: list[Any]) -> list[Any]:
        places, factors = [], []
        for n in range(together):
            place = builder.add(at, I64(n))
            there = builder.icmp_signed("<", place, count)
            own = builder.select(there, place, last)
            places.append(builder.add(w, builder.mul(of_w, own)))
            scale = emit.load(builder, FLOAT, builder.add(w_scale, builder.mul(own, I64(4))))
            factors.append(builder.select(there, scale, FLOAT(0.0)))
        total = across(builder, sums_of(builder, line, places, inputs, width, ahead=True))
        factor = builder.fpext(emit.repeated(builder, emit.gathered(builder, factors), rows), scales.type)
        exact = builder.sitofp(total, scales.type)
        result = builder.fptrunc(emit.times(builder, exact, emit.times(builder, factor, scales)), vector(FLOAT, LANES))
        emit.store(builder, result, builder.add(room, builder.mul(at, I64(4 * rows))))
        return []

    emit.loop(builder, I64(0), I64(COUNT), together, [], some)
    for first in range(0, rows, QUARTER):
        parts = []
        for n in range(QUARTER):
            pair = [builder.add(room, I64(4 * (rows * own + first))) for own in (n, n + QUARTER)]
            parts.append(emit.joined(builder, [emit.load(builder, vector(FLOAT, QUARTER), own) for own in pair]))
        for n, own in enumerate(emit.turned(builder, parts)):
            place = builder.add(out, builder.mul(of_out, I64(first + n)))
            emit.store(builder, emit.plus(builder, emit.load(builder, own.type, place), own), place)


@compiled
def several(w: Any, first: int, last: int, x: Any, rows: int, out: Array) -> None:
    """out[:R, first : last] += x[:R] · w[first : last]ᵀ of `Int8Rows` and `Words`, for R up to a multiple of four."""
    width, of_x, of_out = w.weight.shape[1], 2 * x.value.shape[1], 4 * out.shape[1]
    weights, scales = address(w.weight, 0), address(w.scale, 0)
    values, x_scales, to = address(x.value, 0), address(x.scale, 0), address(out, 0)
    for begin in range(first, last, WHILE):
        for r in range(0, rows, ROWS):
            own_x = values + of_x * r, of_x, x_scales + 4 * r
            for i in range(begin, min(begin + WHILE, last), COUNT):
                own_w = weights + width * i, width, scales + 4 * i, min(COUNT, last - i)
                place = to + of_out * r + 4 * i
                if rows - r > ROWS // 2:
                    eight_rows((*own_w, *own_x, width, place, of_out))
                else:
                    four_rows((*own_w, *own_x, width, place, of_out))


eight_rows = tile_of("several", emit_several, 10, line(), 8)
four_rows = tile_of("several", emit_several, 10, line(), 4)
