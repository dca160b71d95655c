"""Rows of int8 brought to a panel: pairs of columns outermost, and in each the two numbers of every row together.

Axes: C rows of weights, D width.

Sixteen rows are taken by sixteen columns: what two columns hold of a row is a word of 16 bits, and eight times eight
words are turned in three steps that swap ever larger parts of neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
            for n, words in enumerate(_turned(builder, [builder.bitcast(own, vector(I16, STEP)) for own in both])):
                emit.store(builder, words, builder.add(here, I64(2 * columns * n + 2 * first)))
        return []

    def some(column: Any, now: list[Any]) -> list[Any]:
        return put(column, lambda place: emit.load(builder, vector(I8, STEP), place))

    def rest(column: Any, now: list[Any]) -> list[Any]:
        left = builder.sub(width, column)
        return put(column, lambda place: emit.partly(builder, place, left, STEP))

    emit.loop(builder, I64(0), whole, STEP, [], some)
    emit.loop(builder, whole, width, STEP, [], rest)


def _turned(builder: Any, rows: Sequence[Any]) -> list[Any]:
    """Eight rows of two times eight words: [8, 2, 8] -> [8, 2, 8], the words outermost."""
    ones = [_zipped(builder, rows[n], rows[n + 1], 1) for n in range(0, WORDS, 2)]
    turned = list[Any]()
    for half in range(2):
        twos = [_zipped(builder, ones[n][half], ones[n + 1][half], 2) for n in (0, 2)]
        for quarter in range(2):
            turned += _zipped(builder, twos[0][quarter], twos[1][quarter], 4)
    return turned


def _zipped(builder: Any, a: Any, b: Any, size: int) -> list[Any]:
    """So many words of one, and as many of the other, in turns: the first halves of each eight, and the second ones."""
    count, parts = a.type.count, list[Any]()
    for half in (0, WORDS // 2):
        starts = [eight + n for eight in range(0, count, WORDS) for n in range(half, half + WORDS // 2, size)]
        places = [start + other + n for start in starts for other in (0, count) for n in range(size)]
        parts.append(builder.shuffle_vector(a, b, emit.lanes_of(places)))
    return parts


panel_tile = tile_of("panel", emit_panel, 5, line())
