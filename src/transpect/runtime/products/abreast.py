"""Weights of 4 bits with rows in 8, eight rows of weights abreast: each has a lane of its own, so nothing is summed
across lanes, and what scales a block of all eight is one vector.

Axes: R rows of activations, C rows of weights (eight), D width.

Of a block of 32 columns a row of weights holds four words of 32 bits. Those of eight rows are turned, so that a vector
holds one word of each: its lower halves of bytes are multiplied with four columns of x, which stand in every lane, and
its upper ones with four others. The sums of a whole block fit into 16 bits, for they are at most 16 · 15 · 127.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.emit import FLOAT, I8, I16, I32, I64, vector
from transpect.runtime.products.formats import BLOCK
from transpect.runtime.products.kernel import ARRAYS, address, addresses, chosen_by_types, class_of, width
from transpect.runtime.products.nibbles import EIGHT, NIBBLES, Nibbles, rows_of
from transpect.runtime.products.tiles import tile_of

Array = Any
WORDS = BLOCK // 8
"""Of 32 bits with the codes of a block."""
FEW = 4
"""R, where it is not one: as many sums as registers hold beside what they are made of."""
AHEAD = 6144
"""How many bytes ahead weights are asked for."""
NUMBERS = ARRAYS + 8
"""That `emit_abreast` is given."""
FLOATS = EIGHT * (EIGHT + 1)
"""Scales of eight blocks of eight rows, and zeros before them."""


class _Pass(NamedTuple):
    """What a loop over blocks knows.

    Attributes:
        own: the format.
        line: the CPU.
        weights: where the first row begins in each array.
        steps: bytes from one row to the next.
        inputs: of each of R rows where its integers, its scales and its totals begin.
        room: where the scales of up to eight blocks are, and what is taken away behind them.
    """

    own: Nibbles
    line: Line
    weights: Sequence[Any]
    steps: Sequence[Any]
    inputs: Sequence[Sequence[Any]]
    room: Any


def emit_abreast(own: Nibbles, builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[r, c] += Σ over blocks of scale[r, b]·scale[c, b]·Σ_d x[r, d]·q[c, d] − total[r, b]·minimum[c, b] for R =
    ``rows`` and C rows of weights, which lie behind each other; with ``apart`` = 0 all C are the first one."""
    weights, (apart, value, of_x, scale, total, count, out, of_out) = args[:ARRAYS], args[ARRAYS:]
    of_scales = builder.lshr(of_x, I64(3))  # a float32 for each 32 bytes
    bases = (value, of_x), (scale, of_scales), (total, of_scales)
    inputs = [[builder.add(base, builder.mul(step, I64(r))) for base, step in bases] for r in range(rows)]
    steps = [builder.mul(builder.mul(count, apart), I64(size)) for size in own.sizes]
    room, zero = emit.room(builder, FLOAT, 2 * FLOATS), emit.ones(FLOAT, EIGHT, 0.0)
    for place in (0, 4 * FLOATS):
        emit.store(builder, zero, builder.add(room, I64(place)))
    body = partial(_eight, builder, _Pass(own, line, weights, steps, inputs, room), count)
    for r, result in enumerate(emit.loop(builder, I64(0), count, EIGHT, [zero] * rows, body)):
        place = builder.add(out, builder.mul(of_out, I64(r)))
        emit.store(builder, emit.plus(builder, emit.load(builder, zero.type, place), result), place)


def _eight(builder: Any, of: _Pass, count: Any, first: Any, now: list[Any]) -> list[Any]:
    """Eight blocks more, or those that are left."""
    left, none = builder.sub(count, first), I64(0)
    whole = builder.icmp_signed(">=", left, I64(EIGHT))
    some = builder.select(whole, I64(EIGHT), left)
    by_eight = builder.select(whole, some, none)
    for many, begin, end in ((EIGHT, none, by_eight), (1, by_eight, some)):
        emit.loop(builder, begin, end, many, [], partial(_scales, builder, of, first, many))
    sums = [emit.ones(I16, 2 * EIGHT, 0)] * len(now)
    state = emit.loop(builder, none, some, 1, [*now, *sums], partial(_block, builder, of, first))
    return _added(builder, of, first, some, state)


def _scales(builder: Any, of: _Pass, first: Any, many: int, at: Any, now: list[Any]) -> list[Any]:
    """Write down what scales so many blocks."""
    found = of.own.scales(builder, of.weights, of.steps, builder.add(first, at), many)
    for n, (scale, minimum) in enumerate(found):
        place = builder.add(of.room, builder.mul(builder.add(at, I64(1 + n)), I64(4 * EIGHT)))
        emit.store(builder, scale, place)
        if minimum is not None:
            emit.store(builder, minimum, builder.add(place, I64(4 * FLOATS)))
    return []


def _block(builder: Any, of: _Pass, first: Any, inner: Any, now: list[Any]) -> list[Any]:
    """Results with the block before, whose sums have had the time to become ready, and the sums of this one."""
    results, at, size = _added(builder, of, first, inner, now), builder.add(first, inner), of.own.sizes[0]
    for more in range(AHEAD, AHEAD + size * EIGHT, 64):
        emit.prefetch(builder, builder.add(of.weights[0], builder.mul(at, I64(size * EIGHT))), more)
    places = rows_of(builder, builder.add(of.weights[0], builder.mul(at, I64(size))), of.steps[0])
    words = [emit.load(builder, vector(I32, WORDS), place, of.own.codes) for place in places]
    pairs = [emit.joined(builder, pair) for pair in zip(words[:WORDS], words[WORDS:], strict=True)]
    sums = [emit.ones(I16, 2 * EIGHT, 0)] * len(of.inputs)
    columns = [builder.add(x, builder.mul(at, I64(BLOCK))) for x, _, _ in of.inputs]
    for n, both in enumerate(emit.turned(builder, pairs)):
        whole = builder.bitcast(both, vector(I8, BLOCK))
        lower = builder.and_(whole, emit.ones(I8, BLOCK, 15))
        upper = builder.lshr(whole, emit.ones(I8, BLOCK, 4))
        for half, codes in enumerate((lower, upper)):
            for r, column in enumerate(columns):
                four = emit.spread(builder, emit.load(builder, I32, column, BLOCK // 2 * half + 4 * n), EIGHT)
                products = of.line.narrow(builder, codes, builder.bitcast(four, codes.type))  # type: ignore[misc]
                sums[r] = builder.add(sums[r], products)
    return [*results, *sums]


def _added(builder: Any, of: _Pass, first: Any, inner: Any, now: Sequence[Any]) -> list[Any]:
    """Results, with the block before this one; before the first one of eight nothing is added."""
    rows, kind = len(of.inputs), vector(FLOAT, EIGHT)
    place = builder.add(of.room, builder.mul(inner, I64(4 * EIGHT)))
    before = builder.sub(builder.add(first, inner), I64(1))
    before = builder.mul(builder.select(builder.icmp_signed("<", before, I64(0)), I64(0), before), I64(4))
    scale, minimum = emit.load(builder, kind, place), None
    if of.own.shifted:
        minimum = builder.fneg(emit.load(builder, kind, place, 4 * FLOATS))
    results = []
    for (_, scales, totals), result, own in zip(of.inputs, now[:rows], now[rows:], strict=True):
        of_row, total = (
            emit.spread(builder, emit.load(builder, FLOAT, builder.add(base, before)), EIGHT)
            for base in (scales, totals)
        )
        ones, zero = emit.ones(I16, 2 * EIGHT, 1), emit.ones(I32, EIGHT, 0)
        dot = builder.sitofp(of.line.wide(builder, zero, own, ones), kind)  # type: ignore[misc]
        dot = emit.times(builder, dot, of_row)
        if minimum is None:
            dot = emit.fma(builder, total, emit.ones(FLOAT, EIGHT, -8.0), dot)
            results.append(emit.fma(builder, dot, scale, result))
        else:
            results.append(emit.fma(builder, total, minimum, emit.fma(builder, dot, scale, result)))
    return results


def abreast_of(line: Line) -> dict[type | None, Any]:
    """`abreast` by the classes of the weights; empty where the line has nothing for it."""
    return {kind: _made(kind, line) for kind in NIBBLES} if line.narrow is not None else {}


def _made(kind: type, line: Line) -> Any:
    emitted, size = partial(emit_abreast, NIBBLES[kind]), NIBBLES[kind].sizes[0]
    one, few = (tile_of(f"abreast.{kind.__name__}", emitted, NUMBERS, line, rows) for rows in (1, FEW))

    def multiplied(w: Any, first: int, last: int, x: Any, rows: int, out: Array) -> None:
        count, i, room = width(w) // size, first, np.empty((rows + FEW, EIGHT), np.float32)
        while i < last:
            whole = last - i >= EIGHT  # otherwise one by one: eight times the same row, of which one result is taken
            weights = (*addresses(w, i), np.int64(whole))
            to, of_out = (address(out, 0) + 4 * i, 4 * out.shape[1]) if whole else (address(room, 0), 4 * EIGHT)
            if not whole:
                room[:] = np.float32(0.0)
            for r in range(0, rows, FEW):
                values, scales, totals = addresses(x, r)
                own = (*weights, values, width(x), scales, totals, count, to + of_out * r, of_out)
                if rows == 1:
                    one(own)
                else:
                    few(own)
            if not whole:
                for r in range(rows):
                    out[r, i] += room[r, 0]
            i += EIGHT if whole else 1

    return multiplied


ABREAST = abreast_of(line())
"""What this is for, by classes of weights, with `Blocks`."""


def abreast(w: Any, first: int, last: int, x: Any, rows: int, out: Array) -> None:
    """out[:R, first : last] += x[:R] · w[first : last]ᵀ; for compiled code.

    Args:
        x: with room for rows up to a multiple of `FEW`; so has ``out``, whose rows after the last mean nothing.
    """
    raise AssertionError("for compiled code")


chosen_by_types(abreast, lambda w, first, last, x, rows, out: ABREAST.get(class_of(w)))
