"""Rows of int8 brought to a panel: pairs of columns outermost, and in each the two numbers of every row together.

Axes: C rows of weights, D width.

Sixteen rows are taken by sixteen columns: what two columns hold of a row is a word of 16 bits, and eight times eight
words are turned in three steps that swap ever larger parts of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.emit import I8, I16, I64, vector
from transpect.runtime.products.tiles import VECTORS, lanes, tile_of

STEP = 16
"""Rows, and columns, that are turned at a time."""
WORDS = 8
"""Of 16 bits in what shuffles don't cross."""


def emit_panel(builder: Any, line: Line, rows: int, args: Any) -> None:
    """panel[d/2, c] ← w[c, d], w[c, d + 1] for as many rows as a panel has; of the rows after the last of ``count``
    that one again. The step from one row to the next is in bytes; the panel has room for D up to whole `STEP`."""
    w, of_w, count, width, panel = args
    columns = VECTORS * lanes(line)
    last = builder.sub(count, I64(1))
    bases = []
    for n in range(columns):
        own = builder.select(builder.icmp_signed("<", I64(n), last), I64(n), last)
        bases.append(builder.add(w, builder.mul(of_w, own)))
    whole = builder.and_(width, I64(-STEP))

    def put(column: Any, read: Callable[[Any], Any]) -> list[Any]:
        here = builder.add(panel, builder.mul(column, I64(columns)))
        for first in range(0, columns, STEP):
            found = [read(builder.add(base, column)) for base in bases[first : first + STEP]]
            both = [emit.joined(builder, [a, b]) for a, b in zip(found[:WORDS], found[WORDS:], strict=True)]
            for n, words in enumerate(emit.turned(builder, [builder.bitcast(own, vector(I16, STEP)) for own in both])):
                emit.store(builder, words, builder.add(here, I64(2 * columns * n + 2 * first)))
        return []

    def some(column: Any, now: list[Any]) -> list[Any]:
        return put(column, lambda place: emit.load(builder, vector(I8, STEP), place))

    def rest(column: Any, now: list[Any]) -> list[Any]:
        left = builder.sub(width, column)
        return put(column, lambda place: emit.partly(builder, place, left, STEP))

    emit.loop(builder, I64(0), whole, STEP, [], some)
    emit.loop(builder, whole, width, STEP, [], rest)


panel_tile = tile_of("panel", emit_panel, 5, line())
