"""Softmax of scores that stand as [S, C], C queries beside each other: what is done to vectors of queries.

Axes: S keys, C queries of two vectors (`tiles`).
"""

from __future__ import annotations

import math
from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.emit import FLOAT, I32, I64, vector
from transpect.runtime.products.tiles import VECTORS, lanes, tile_of

LEAST = -87.0
"""e to what is smaller is 0."""
_TO_INTEGER = 1.5 * 2.0**23
_OF_TO_INTEGER = 0x4B400000
"""Its bits."""


def emit_softmax(builder: Any, line: Line, rows: int, args: Any) -> None:
    """most' = max(most, max over s of scores); scores ← e^(scores − most'); factor = e^(most − most');
    total ← factor · total + Σ over s of scores."""
    scores, of_key, count, most, total, factor = args
    kind = vector(FLOAT, lanes(line))
    steps = [4 * kind.count * n for n in range(VECTORS)]
    before = [emit.load(builder, kind, most, step) for step in steps]

    def larger(at: Any, now: list[Any]) -> list[Any]:
        place = builder.add(scores, builder.mul(at, of_key))
        found = [emit.load(builder, kind, place, step) for step in steps]
        # what is not a number stays one: it is not less or equal
        keeps = [builder.fcmp_ordered("<=", own, old) for own, old in zip(found, now, strict=True)]
        return [builder.select(*parts) for parts in zip(keeps, now, found, strict=True)]

    after = emit.loop(builder, I64(0), count, 1, before, larger)
    factors = [exponential(builder, emit.minus(builder, a, b)) for a, b in zip(before, after, strict=True)]

    def share(at: Any, now: list[Any]) -> list[Any]:
        place = builder.add(scores, builder.mul(at, of_key))
        following = []
        for step, top, sums in zip(steps, after, now, strict=True):
            own = exponential(builder, emit.minus(builder, emit.load(builder, kind, place, step), top))
            emit.store(builder, own, builder.add(place, I64(step)))
            following.append(emit.plus(builder, sums, own))
        return following

    begin = [
        emit.times(builder, emit.load(builder, kind, total, step), own)
        for step, own in zip(steps, factors, strict=True)
    ]
    sums = emit.loop(builder, I64(0), count, 1, begin, share)
    for n, step in enumerate(steps):
        for place, values in ((most, after), (total, sums), (factor, factors)):
            emit.store(builder, values[n], builder.add(place, I64(step)))


def emit_total(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out ← Σ e^(numbers − most), of which none is larger; most and out are numbers by their addresses."""
    numbers, count, most, out = args
    size, together = lanes(line), 4
    top = emit.load(builder, FLOAT, most)

    def share(at: Any, number: int, n: int = 0) -> Any:
        own = emit.load(builder, vector(FLOAT, number), builder.add(numbers, builder.mul(at, I64(4))), 4 * number * n)
        return exponential(builder, emit.minus(builder, own, emit.spread(builder, top, number)))

    def some(at: Any, now: list[Any]) -> list[Any]:
        return [emit.plus(builder, own, share(at, size, n)) for n, own in enumerate(now)]

    zero = emit.ones(FLOAT, size, 0.0)
    whole = builder.and_(count, I64(-together * size))
    sums = emit.loop(builder, I64(0), whole, together * size, [zero] * together, some)
    rest = emit.loop(
        builder,
        whole,
        count,
        1,
        [emit.ones(FLOAT, 1, 0.0)],
        lambda at, now: [emit.plus(builder, now[0], share(at, 1))],
    )
    total = emit.sums(builder, [emit.sums(builder, sums)])
    emit.store(builder, emit.plus(builder, total, rest[0]), out)


def exponential(builder: Any, x: Any) -> Any:
    """e^x of numbers that are not above 0, to within 2 units of the last place: as in `numeric.exponential`."""
    count = x.type.count

    def same(value: float) -> Any:
        return emit.ones(FLOAT, count, value)

    whole = vector(I32, count)
    seen = builder.fcmp_unordered(">=", x, same(LEAST))
    shifted = emit.fma(builder, x, same(math.log2(math.e)), same(_TO_INTEGER))
    n = emit.minus(builder, shifted, same(_TO_INTEGER))
    r = emit.fma(builder, n, same(-0.693359375), x)
    r = emit.fma(builder, n, same(2.12194440e-4), r)
    p = same(1 / math.factorial(7))
    for power in range(6, -1, -1):
        p = emit.fma(builder, p, r, same(1 / math.factorial(power)))
    exponent = builder.sub(builder.bitcast(shifted, whole), emit.ones(I32, count, _OF_TO_INTEGER))
    scaled = builder.add(builder.bitcast(p, whole), builder.shl(exponent, emit.ones(I32, count, 23)))
    return builder.select(seen, builder.bitcast(scaled, x.type), same(0.0))


total_of = tile_of("total", emit_total, 4, line())
softmax_tile = tile_of("softmax", emit_softmax, 6, line())
