"""The innermost loops of attention of few rows: one query with the keys of a block, and shares of the values there.

Axes: S keys, E head.

What a key scores and what a number of the output sums to does not depend on how many keys a call is about, nor on where
it begins: a score is summed by lanes and then across them in one order, an output from the first key to the last one.
"""

from __future__ import annotations

from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.emit import FLOAT, I64, vector
from transpect.runtime.products.formats import LINE
from transpect.runtime.products.softmax import exponential
from transpect.runtime.products.tiles import lanes, tile_of

TOGETHER = 8
"""Keys that share the loads of a query, and vectors of an output that are summed at a time."""


def emit_scores(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[s] ← Σ_e query[e] · keys[s, e]; the step from one key to the next is in bytes."""
    query, keys, of_key, width, count, out = args
    step = lanes(line)
    kind = vector(FLOAT, step)
    zero = emit.ones(FLOAT, step, 0.0)
    whole = builder.and_(width, I64(-step))

    def some(number: int) -> Any:
        def score(at: Any, now: list[Any]) -> list[Any]:
            first = builder.add(keys, builder.mul(at, of_key))
            places = [builder.add(first, builder.mul(of_key, I64(n))) for n in range(number)]

            def column(e: Any, sums: list[Any]) -> list[Any]:
                offset = builder.mul(e, I64(4))
                own = emit.load(builder, kind, builder.add(query, offset))
                found = [emit.load(builder, kind, builder.add(place, offset)) for place in places]
                return [emit.fma(builder, own, key, old) for key, old in zip(found, sums, strict=True)]

            def rest(e: Any, sums: list[Any]) -> list[Any]:
                offset, left = builder.mul(e, I64(4)), builder.mul(builder.sub(width, e), I64(4))

                def read(place: Any) -> Any:
                    return builder.bitcast(emit.partly(builder, builder.add(place, offset), left, 4 * step), kind)

                own = read(query)
                return [emit.fma(builder, own, read(place), old) for place, old in zip(places, sums, strict=True)]

            sums = emit.loop(builder, I64(0), whole, step, [zero] * number, column)
            sums = emit.loop(builder, whole, width, step, sums, rest)
            emit.store(builder, emit.sums(builder, sums), builder.add(out, builder.mul(at, I64(4))))
            return []

        return score

    fours = builder.and_(count, I64(-TOGETHER))
    emit.loop(builder, I64(0), fours, TOGETHER, [], some(TOGETHER))
    emit.loop(builder, fours, count, 1, [], some(1))


def emit_mixed(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[e] += Σ_s share[s] · values[s, e]; the step from one value to the next is in bytes."""
    share, values, of_value, width, count, out = args

    def columns(vectors: int, size: int) -> Any:
        kind = vector(FLOAT, size)

        def mix(e: Any, now: list[Any]) -> list[Any]:
            offset = builder.mul(e, I64(4))
            place, first = builder.add(out, offset), builder.add(values, offset)

            def value(s: Any, sums: list[Any]) -> list[Any]:
                own = emit.spread(builder, emit.load(builder, FLOAT, builder.add(share, builder.mul(s, I64(4)))), size)
                from_value = builder.add(first, builder.mul(s, of_value))
                found = [emit.load(builder, kind, from_value, 4 * size * n) for n in range(vectors)]
                return [emit.fma(builder, own, one, old) for one, old in zip(found, sums, strict=True)]

            begin = [emit.load(builder, kind, place, 4 * size * n) for n in range(vectors)]
            for n, total in enumerate(emit.loop(builder, I64(0), count, 1, begin, value)):
                emit.store(builder, total, builder.add(place, I64(4 * size * n)))
            return []

        return mix

    done, step = I64(0), lanes(line)
    for vectors, size in ((TOGETHER, step), (1, step), (1, 1)):
        until = builder.and_(width, I64(-vectors * size))
        emit.loop(builder, done, until, vectors * size, [], columns(vectors, size))
        done = until


def emit_shares(builder: Any, line: Line, rows: int, args: Any) -> None:
    """scores ← softmax(scores)."""
    scores, count = args
    size = lanes(line)
    whole = builder.and_(count, I64(-size))

    def load(at: Any, number: int) -> Any:
        return emit.load(builder, vector(FLOAT, number), place(at))

    def place(at: Any) -> Any:
        return builder.add(scores, builder.mul(at, I64(4)))

    def through(body: Any, begin: float) -> tuple[Any, Any]:
        """What all lanes carry, and what the scores behind the last whole vector do."""
        carried = []
        for number, first, last in ((size, I64(0), whole), (1, whole, count)):

            def step(at: Any, now: list[Any], number: int = number) -> list[Any]:
                return [body(at, now[0], number)]

            carried += emit.loop(builder, first, last, number, [emit.ones(FLOAT, number, begin)], step)
        return carried[0], carried[1]

    def larger(a: Any, b: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)  # what is no number shows in the sum

    found, other = through(lambda at, now, number: larger(load(at, number), now), float("-inf"))
    while found.type.count > 1:
        found = larger(*emit.halves(builder, found))
    most = larger(found, other)

    def share(at: Any, now: Any, number: int) -> Any:
        top = most if number == 1 else emit.repeated(builder, most, number)
        own = exponential(builder, emit.minus(builder, load(at, number), top))
        emit.store(builder, own, place(at))
        return emit.plus(builder, now, own)

    total, rest = through(share, 0.0)
    total = emit.plus(builder, emit.sums(builder, [total]), rest)

    def part(at: Any, now: Any, number: int) -> Any:
        whole = total if number == 1 else emit.repeated(builder, total, number)
        emit.store(builder, builder.fdiv(load(at, number), whole), place(at))
        return now

    through(part, 0.0)


def emit_ask(builder: Any, line: Line, rows: int, args: Any) -> None:
    """Ask memory for so many bytes from an address on."""
    place, count = args

    def ask(at: Any, now: list[Any]) -> list[Any]:
        emit.prefetch(builder, builder.add(place, at), 0)
        return []

    emit.loop(builder, I64(0), count, LINE, [], ask)


ask_for = tile_of("ask", emit_ask, 2, line())
scores_of = tile_of("scores", emit_scores, 6, line())
mixed_of = tile_of("mixed", emit_mixed, 6, line())
shares_of = tile_of("shares", emit_shares, 2, line())
