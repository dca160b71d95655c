"""Rows beside each other: numbers of several rows that are read together, laid side by side."""

from __future__ import annotations

from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.emit import FLOAT, I64, vector
from transpect.runtime.products.tiles import VECTORS, lanes, tile_of

LANES = lanes(line())
"""Of a vector."""


def emit_turned(builder: Any, line: Line, rows: int, args: Any) -> None:
    """panel[d, c] ← x[c, d] for the C rows of a panel and for as many columns, in whole vectors, as ``count`` says; the
    step from one row of x to the next is in bytes."""
    x, of_x, count, panel = args
    kind = vector(FLOAT, lanes(line))
    size = 4 * kind.count

    def some(column: Any, now: list[Any]) -> list[Any]:
        here = builder.add(panel, builder.mul(column, I64(VECTORS * size)))
        for n in range(VECTORS):
            places = [builder.add(x, builder.mul(of_x, I64(kind.count * n + c))) for c in range(kind.count)]
            read = [emit.load(builder, kind, builder.add(own, builder.shl(column, I64(2)))) for own in places]
            for d, turned in enumerate(emit.turned(builder, read)):
                emit.store(builder, turned, builder.add(here, I64(size * (VECTORS * d + n))))
        return []

    emit.loop(builder, I64(0), builder.and_(count, I64(-kind.count)), kind.count, [], some)


turned_tile = tile_of("turned", emit_turned, 4, line())
