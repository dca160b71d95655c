"""Weights in blocks with rows in 8 bits: a sum of integers for each block, times the scales of both.

Axes: R rows, D width.

Σ w·x over a block is s·t·Σ (q − zero)·a − minimum·t·Σ a, where s is the scale of the weights, t that of a row, and a
its integers. Where vectors have 64 bytes four blocks are summed in the lanes of one; where they have 32, scales and
what is taken from all codes are computed for eight blocks at a time; what is left is computed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.codes import TOGETHER, Code, Read
from transpect.runtime.products.cpu import Line
from transpect.runtime.products.emit import FLOAT, I8, I32, I64, vector
from transpect.runtime.products.formats import BLOCK
from transpect.runtime.products.kernel import ARRAYS

AHEAD = 1024
"""How many bytes ahead weights are asked for where several rows keep the loop busy."""


def emit_blocks(code: Code, builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[:R] ← w · x, second[:R] ← v · x, where R is ``rows``: see `kernel_of`; lengths are counts of blocks."""
    weights = args[:ARRAYS], args[ARRAYS : 2 * ARRAYS]
    value, scale, total, stride, count, out, second = args[2 * ARRAYS :]
    of_scales = builder.lshr(stride, I64(3))  # a float32 for each 32 bytes
    bases = [(value, stride), (scale, of_scales), (total, of_scales)]
    inputs = [[builder.add(base, builder.mul(one, I64(r))) for base, one in bases] for r in range(rows)]

    def some(together: int, block: Any, now: list[Any]) -> list[Any]:
        read = [code.read(builder, row, block, together) for row in weights]
        if rows > 1 and together > 1:
            for row in weights:
                emit.prefetch(builder, builder.add(row[0], builder.mul(block, I64(BLOCK // 2))), AHEAD)
        return _step(builder, code, line, read, inputs, block, together, now)

    lanes, first = BLOCK // 4, I64(0)
    least = [emit.ones(FLOAT, 4, 0)] * (2 * rows if code.shifted else 0)
    sums, less = [emit.ones(FLOAT, lanes, 0)] * (2 * rows), list[Any]()
    if line.width == BLOCK and code.scales is not None:
        first = builder.and_(count, I64(-lanes))
        body = partial(_eight, builder, code, line, weights, inputs)
        state = emit.loop(builder, I64(0), first, lanes, sums * 2, body)
        sums, less = state[: 2 * rows], [_folded(builder, each) for each in state[2 * rows :]]
    if line.width > BLOCK:
        first = builder.and_(count, I64(-TOGETHER))
        wide = [emit.ones(FLOAT, 2 * lanes, 0)] * (2 * rows)
        state = emit.loop(builder, I64(0), first, TOGETHER, [*wide, *least], partial(some, TOGETHER))
        sums, least = [_folded(builder, each) for each in state[: 2 * rows]], state[2 * rows :]
    state = emit.loop(builder, first, count, 1, [*sums, *least], partial(some, 1))
    final = [_folded(builder, each) for each in state[: 2 * rows]]
    for taken in (state[2 * rows :], less):
        if taken:
            final = [emit.minus(builder, each, own) for each, own in zip(final, taken, strict=True)]
    results = emit.halves(builder, emit.sums(builder, final))
    for place, part in zip((out, second), results, strict=True):
        emit.store(builder, part, place)


def _step(
    builder: Any,
    code: Code,
    line: Line,
    read: Sequence[Read],
    inputs: Sequence[Any],
    block: Any,
    together: int,
    now: list[Any],
) -> list[Any]:
    """Some blocks more: sums by weight, then by row, then the parts of the minima."""
    rows, size = len(inputs), BLOCK if together == 1 else 2 * BLOCK
    lanes, following = size // 4, list(now)
    factors = [emit.repeated(builder, own.scale, lanes // together) for own in read]
    fine = [[emit.repeated(builder, each, 4) for each in own.fine or ()] for own in read]
    for r, (value, scale, total) in enumerate(inputs):
        place, of_scale = builder.add(value, builder.mul(block, I64(BLOCK))), builder.mul(block, I64(4))
        numbers = [emit.load(builder, vector(I8, size), place, n) for n in range(0, together * BLOCK, size)]
        scales = emit.load(builder, vector(FLOAT, together), builder.add(scale, of_scale))
        scales = emit.repeated(builder, scales, lanes // together)
        zeros = [emit.ones(I8, size, code.zero)] * len(numbers)
        begin = _less(builder, _dots(builder, code, line, zeros, numbers, None)) if code.zero else None
        for which, own in enumerate(read):
            n = which * rows + r
            dots = _dots(builder, code, line, own.codes, numbers, begin)
            if fine[which]:
                dots = [builder.mul(dot, each) for dot, each in zip(dots, fine[which], strict=True)]
            whole = dots[0] if len(dots) == 1 else builder.add(*dots)
            whole = builder.sitofp(whole, vector(FLOAT, lanes))
            factor = emit.times(builder, factors[which], scales)
            following[n] = emit.fma(builder, whole, factor, now[n])
            if code.shifted:
                of_row = emit.load(builder, vector(FLOAT, together), builder.add(total, of_scale))
                parts = [emit.widened(builder, each, 4) for each in (own.minimum, of_row)]
                following[2 * rows + n] = emit.fma(builder, parts[0], parts[1], now[2 * rows + n])
    return following


def _eight(
    builder: Any, code: Code, line: Line, weights: Sequence[Any], inputs: Sequence[Any], block: Any, now: list[Any]
) -> list[Any]:
    """Eight blocks more: sums by weight, then by row, then what is to be taken from them, block by lane.

    Factors are written down, since reading one into all lanes costs nothing beside shuffling it there.
    """
    rows, lanes, following = len(inputs), BLOCK // 4, list(now)
    assert code.scales is not None
    zero, of_scale = emit.ones(I32, lanes, 0), builder.mul(block, I64(4))
    factors = emit.room(builder, FLOAT, 2 * rows * lanes)
    for which, row in enumerate(weights):
        scale, minimum = code.scales(builder, row, block, lanes)
        taken = minimum if code.shifted else emit.times(builder, scale, emit.ones(FLOAT, lanes, code.zero))
        for r, (_, of_row, total) in enumerate(inputs):
            scales, totals = (
                emit.load(builder, vector(FLOAT, lanes), builder.add(base, of_scale)) for base in (of_row, total)
            )
            n = which * rows + r
            emit.store(builder, emit.times(builder, scale, scales), builder.add(factors, I64(4 * lanes * n)))
            following[2 * rows + n] = emit.fma(builder, taken, totals, following[2 * rows + n])

    def one(number: Any, now: list[Any]) -> list[Any]:
        sums, at = list(now), builder.add(block, number)
        own_factors = builder.add(factors, builder.mul(number, I64(4)))
        codes = [code.read(builder, row, at, 1).codes[0] for row in weights]
        for r, (value, _, _) in enumerate(inputs):
            x = emit.load(builder, vector(I8, BLOCK), builder.add(value, builder.mul(at, I64(BLOCK))))
            for which, own in enumerate(codes):
                n = which * rows + r
                dot = builder.sitofp(line.dot(builder, zero, own, x, code.small), vector(FLOAT, lanes))
                factor = emit.spread(builder, emit.load(builder, FLOAT, own_factors, 4 * lanes * n), lanes)
                sums[n] = emit.fma(builder, dot, factor, sums[n])
        return sums

    return [*emit.loop(builder, I64(0), I64(lanes), 1, following[: 2 * rows], one), *following[2 * rows :]]


def _dots(builder: Any, code: Code, line: Line, codes: Sequence[Any], numbers: Sequence[Any], begin: Any) -> list[Any]:
    """Sums of products by lanes, from ``begin`` on: of both vectors in one, or of each with a scale for 16 columns."""
    zero = emit.ones(I32, numbers[0].type.count // 4, 0)
    if code.fine:
        starts = begin or [zero] * len(codes)
        parts = zip(starts, codes, numbers, strict=True)
        return [line.dot(builder, start, own, number, code.small) for start, own, number in parts]
    total = begin[0] if begin else zero
    for own, number in zip(codes, numbers, strict=True):
        total = line.dot(builder, total, own, number, code.small)
    return [total]


def _less(builder: Any, dots: Sequence[Any]) -> list[Any]:
    return [builder.neg(dot) for dot in dots]


def _folded(builder: Any, value: Any) -> Any:
    return emit.plus(builder, *emit.halves(builder, value))
