"""The innermost loops of attention of few rows: queries with the keys of a block, and shares of the values there.

Axes: H heads that share keys, S keys, E head.

What a key scores and what a number of the output sums to does not depend on how many keys a call is about, nor on where
it begins: a score is summed by lanes and then across them in one order, an output from the first key to the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """out[h, s] ← Σ_e query[h, e] · keys[s, e]; the steps from one head, or key, to the next are in bytes. Meanwhile
    memory is asked for ``size`` bytes from ``ahead`` on."""
    query, of_query, keys, of_key, width, count, out, of_out, heads, ahead, size = args
    step = lanes(line)
    kind = vector(FLOAT, step)
    zero = emit.ones(FLOAT, step, 0.0)
    whole = builder.and_(width, I64(-step))

    def some(query: Any, out: Any, number: int) -> Any:
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

    def head(query: Any, out: Any) -> None:
        emit.loop(builder, I64(0), fours, TOGETHER, [], some(query, out, TOGETHER))
        emit.loop(builder, fours, count, 1, [], some(query, out, 1))

    _of_heads(builder, heads, ((query, of_query), (out, of_out)), (ahead, size), head)


def emit_mixed(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[h, e] += Σ_s share[h, s] · values[s, e]; the steps from one head, or value, to the next are in bytes.
    Meanwhile memory is asked for ``size`` bytes from ``ahead`` on."""
    share, of_share, values, of_value, width, count, out, of_out, heads, ahead, size = args

    def columns(share: Any, out: Any, vectors: int, size: int) -> Any:
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

    def head(share: Any, out: Any) -> None:
        done, step = I64(0), lanes(line)
        for vectors, own in ((TOGETHER, step), (1, step), (1, 1)):
            until = builder.and_(width, I64(-vectors * own))
            emit.loop(builder, done, until, vectors * own, [], columns(share, out, vectors, own))
            done = until

    _of_heads(builder, heads, ((share, of_share), (out, of_out)), (ahead, size), head)


def _of_heads(builder: Any, heads: Any, steps: Sequence[tuple[Any, Any]], asked: tuple[Any, Any], head: Any) -> None:
    """Work of each head by where its arrays begin; before it memory is asked for its share of some bytes."""
    ahead, size = asked
    lines = builder.udiv(builder.add(builder.lshr(size, I64(6)), heads), heads)  # of 64 bytes, one too many at most
    share, end = builder.mul(lines, I64(LINE)), builder.add(ahead, size)

    def one(h: Any, now: list[Any]) -> list[Any]:
        first = builder.add(ahead, builder.mul(h, share))
        last = builder.add(first, share)
        last = builder.select(builder.icmp_signed("<", last, end), last, end)

        def ask(at: Any, now: list[Any]) -> list[Any]:
            emit.prefetch(builder, at, 0)
            return []

        emit.loop(builder, first, last, LINE, [], ask)
        head(*(builder.add(place, builder.mul(h, step)) for place, step in steps))
        return []

    emit.loop(builder, I64(0), heads, 1, [], one)


def emit_shares(builder: Any, line: Line, rows: int, args: Any) -> None:
    """scores ← softmax(scores)."""
    scores, count = args
    size = lanes(line)
    load, through = _ways(builder, scores, count, size)
    most = _largest(builder, load, through)

    def share(at: Any, now: Any, number: int) -> Any:
        top = most if number == 1 else emit.repeated(builder, most, number)
        own = exponential(builder, emit.minus(builder, load(at, number), top))
        emit.store(builder, own, builder.add(scores, builder.mul(at, I64(4))))
        return emit.plus(builder, now, own)

    total, rest = through(share, 0.0)
    total = emit.plus(builder, emit.sums(builder, [total]), rest)

    def part(at: Any, now: Any, number: int) -> Any:
        whole = total if number == 1 else emit.repeated(builder, total, number)
        emit.store(builder, builder.fdiv(load(at, number), whole), builder.add(scores, builder.mul(at, I64(4))))
        return now

    through(part, 0.0)


def emit_largest(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out ← the largest of so many numbers; of what is no number nothing is told."""
    numbers, count, out = args
    emit.store(builder, _largest(builder, *_ways(builder, numbers, count, lanes(line))), out)


def _ways(
    builder: Any, numbers: Any, count: Any, size: int
) -> tuple[Callable[..., Any], Callable[..., tuple[Any, Any]]]:
    """How to load some of the numbers from a place on, and how to go through all: what all lanes carry in the end, and
    what the numbers behind the last whole vector do."""
    whole = builder.and_(count, I64(-size))

    def load(at: Any, number: int) -> Any:
        return emit.load(builder, vector(FLOAT, number), builder.add(numbers, builder.mul(at, I64(4))))

    def through(body: Any, begin: float) -> tuple[Any, Any]:
        carried = []
        for number, first, last in ((size, I64(0), whole), (1, whole, count)):

            def step(at: Any, now: list[Any], number: int = number) -> list[Any]:
                return [body(at, now[0], number)]

            carried += emit.loop(builder, first, last, number, [emit.ones(FLOAT, number, begin)], step)
        return carried[0], carried[1]

    return load, through


def _largest(builder: Any, load: Callable[..., Any], through: Callable[..., tuple[Any, Any]]) -> Any:
    def larger(a: Any, b: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", a, b), a, b)  # what is no number shows in the sum

    found, other = through(lambda at, now, number: larger(load(at, number), now), float("-inf"))
    while found.type.count > 1:
        found = larger(*emit.halves(builder, found))
    return larger(found, other)


scores_of = tile_of("scores", emit_scores, 11, line())
mixed_of = tile_of("mixed", emit_mixed, 11, line())
shares_of = tile_of("shares", emit_shares, 2, line())
largest_of = tile_of("largest", emit_largest, 3, line())
