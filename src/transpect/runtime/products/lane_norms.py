"""Norms of vectors that stand as [D, C], C tokens beside each other: what is done to vectors of tokens.

Axes: D width, C tokens of two vectors (`tiles`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.emit import FLOAT, I64, vector
from transpect.runtime.products.tiles import VECTORS, lanes, tile_of


def emit_norm(builder: Any, line: Line, rows: int, args: Any, *, centred: bool) -> None:
    """out[d, c] ← (x[d, c] − mean[c]) / √(var[c] + eps) · weight[d] + bias[d], or, not ``centred``, the same of a mean
    of 0; ``of`` is where 1/D and eps are."""
    x, count, weight, bias, of, out = args
    kind = vector(FLOAT, lanes(line))
    share, eps = (emit.spread(builder, emit.load(builder, FLOAT, of, 4 * n), kind.count) for n in range(2))
    means = [emit.ones(FLOAT, kind.count, 0.0)] * VECTORS

    def loaded(at: Any) -> list[Any]:
        place = builder.add(x, builder.mul(at, I64(4 * VECTORS * kind.count)))
        return [emit.load(builder, kind, place, 4 * kind.count * n) for n in range(VECTORS)]

    def mean_of(more: Callable[[Any, int, Any], Any]) -> list[Any]:
        def step(at: Any, now: list[Any]) -> list[Any]:
            return [more(own, n, now[n]) for n, own in enumerate(loaded(at))]

        zeros = [emit.ones(FLOAT, kind.count, 0.0)] * VECTORS
        return [emit.times(builder, own, share) for own in emit.loop(builder, I64(0), count, 1, zeros, step)]

    def square(own: Any, n: int, total: Any) -> Any:
        apart = emit.minus(builder, own, means[n])
        return emit.fma(builder, apart, apart, total)

    if centred:
        means = mean_of(lambda own, n, total: emit.plus(builder, own, total))
    factors = []
    for own in mean_of(square):
        root = emit.call(builder, f"llvm.sqrt.v{kind.count}f32", kind, emit.plus(builder, own, eps))
        factors.append(builder.fdiv(emit.ones(FLOAT, kind.count, 1.0), root))

    def write(at: Any, now: list[Any]) -> list[Any]:
        step = builder.mul(at, I64(4))
        scale, shift = (
            emit.spread(builder, emit.load(builder, FLOAT, builder.add(own, step)), kind.count)
            for own in (weight, bias)
        )
        place = builder.add(out, builder.mul(at, I64(4 * VECTORS * kind.count)))
        for n, own in enumerate(loaded(at)):
            unit = emit.times(builder, emit.minus(builder, own, means[n]), factors[n])
            emit.store(builder, emit.fma(builder, unit, scale, shift), builder.add(place, I64(4 * kind.count * n)))
        return []

    emit.loop(builder, I64(0), count, 1, [], write)


layer_norm_tile = tile_of("layer norm", partial(emit_norm, centred=True), 6, line())
rms_norm_tile = tile_of("rms norm", partial(emit_norm, centred=False), 6, line())
