"""The innermost loops of products of many rows: a tile of outputs in registers, a panel of weights in the cache.

Axes: M rows of a tile, C columns of it (two vectors), D width.

A panel holds C rows of weights with the columns outermost, so that what one number of x is multiplied with lies
together. Each output is summed from the first column to the last one, so it does not depend on what else is in a tile
or in a pass. The blocking is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.cpu import Line, line
from transpect.runtime.products.emit import DOUBLE, FLOAT, I8, I16, I32, I64, vector
from transpect.runtime.products.formats import BLOCK
from transpect.runtime.products.kernel import kernel_of

VECTORS = 2
"""In a row of a tile."""
FOUR = 4
"""Rows of a smaller tile, for passes of few rows."""


def lanes(line: Line) -> int:
    """Of 32 bits in a vector, also where a machine has none: LLVM takes them apart."""
    return (line.width or 32) // 4


def rows_of(line: Line) -> int:
    """M: as many sums as registers hold beside what they are made of."""
    return 12 if line.width > 32 else 6


ROWS = rows_of(line())
COLUMNS = VECTORS * lanes(line())
"""C."""
INTEGER_ROWS = ROWS if line().wide is None else FOUR
"""M of `emit_rows`, which sums in two ways."""


def emit_floats(builder: Any, line: Line, rows: int, args: Any, *, anew: bool = False) -> None:
    """out[m, c] += Σ_d x[m, d] · panel[d, c], or out ← that where it begins ``anew``; the steps from one row of x to
    the next, and from one column to the next, from one column of the panel to the next, and from one row of out to the
    next are in bytes."""
    x, of_row, of_column, panel, of_panel, count, out, of_out = args
    kind = vector(FLOAT, lanes(line))
    places = _places(builder, out, of_out, rows, line)
    inputs = [builder.add(x, builder.mul(of_row, I64(m))) for m in range(rows)]

    def column(at: Any, now: list[Any]) -> list[Any]:
        weights = _weights(builder, kind, builder.add(panel, builder.mul(at, of_panel)))
        step, following = builder.mul(at, of_column), list[Any]()
        for m, base in enumerate(inputs):
            own = emit.spread(builder, emit.load(builder, FLOAT, builder.add(base, step)), kind.count)
            following += [emit.fma(builder, own, w, now[VECTORS * m + n]) for n, w in enumerate(weights)]
        return following

    zero = emit.ones(FLOAT, kind.count, 0.0)
    begin = [zero if anew else emit.load(builder, kind, place) for place in places]
    for place, total in zip(places, emit.loop(builder, I64(0), count, 1, begin, column), strict=True):
        emit.store(builder, total, place)


def emit_rows(builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[m, c] += scale[m] · scale[c] · Σ_d x[m, d] · panel[d, c], of integers and rounded once.

    The panel is of bytes. Meanwhile memory is asked for as many bytes as a panel is made of, from ``ahead`` on.
    """
    x, of_row, x_scale, x_crossed, panel, w_scale, w_crossed, ahead, count, out, of_out = args
    wide = vector(DOUBLE, lanes(line))
    if line.wide is None:
        totals = _pairs(builder, line, rows, (x, of_row, panel), I64(0), count, I8, ahead)
    else:
        totals = _fours(builder, line, rows, (x, of_row, x_crossed, panel, w_crossed), count, ahead)
    weights = [builder.fpext(own, wide) for own in _weights(builder, vector(FLOAT, wide.count), w_scale)]
    for n, place in enumerate(_places(builder, out, of_out, rows, line)):
        of_x = builder.fpext(emit.load(builder, FLOAT, x_scale, 4 * (n // VECTORS)), DOUBLE)
        factor = emit.times(builder, weights[n % VECTORS], emit.spread(builder, of_x, wide.count))
        exact = builder.sitofp(totals[n], wide)
        own = builder.fptrunc(emit.times(builder, exact, factor), vector(FLOAT, wide.count))
        emit.store(builder, emit.plus(builder, emit.load(builder, own.type, place), own), place)


def emit_blocks(shifted: bool, builder: Any, line: Line, rows: int, args: Any) -> None:
    """out[m, c] += Σ over blocks of scale[m, b] · scale[b, c] · Σ_d x[m, d] · panel[d, c] − total[m, b] · least[b, c];
    without the last part where nothing is ``shifted``."""
    x, of_row, x_scale, x_total, of_scale, panel, w_scale, w_least, count, out, of_out = args
    kind = vector(FLOAT, lanes(line))
    places = _places(builder, out, of_out, rows, line)

    def block(at: Any, now: list[Any]) -> list[Any]:
        first = builder.mul(at, I64(BLOCK))
        totals = _pairs(builder, line, rows, (x, of_row, panel), first, builder.add(first, I64(BLOCK)))
        of_block = builder.mul(at, I64(4 * VECTORS * kind.count))
        scales = _weights(builder, kind, builder.add(w_scale, of_block))
        least = _weights(builder, kind, builder.add(w_least, of_block)) if shifted else []
        following = list[Any]()
        for m in range(rows):
            step = builder.add(builder.mul(of_scale, I64(m)), builder.mul(at, I64(4)))
            own = emit.spread(builder, emit.load(builder, FLOAT, builder.add(x_scale, step)), kind.count)
            for n in range(VECTORS):
                whole = builder.sitofp(totals[VECTORS * m + n], kind)
                factor = emit.times(builder, own, scales[n])
                following.append(emit.fma(builder, whole, factor, now[VECTORS * m + n]))
            if shifted:
                total = emit.spread(builder, emit.load(builder, FLOAT, builder.add(x_total, step)), kind.count)
                for n, own in enumerate(least):
                    place = VECTORS * m + n
                    following[place] = emit.fma(builder, builder.fneg(total), own, following[place])
        return following

    begin = [emit.load(builder, kind, place) for place in places]
    for place, total in zip(places, emit.loop(builder, I64(0), count, 1, begin, block), strict=True):
        emit.store(builder, total, place)


def _pairs(
    builder: Any,
    line: Line,
    rows: int,
    places: tuple[Any, Any, Any],
    first: Any,
    last: Any,
    stored: Any = I16,
    ahead: Any = None,
) -> list[Any]:
    """Σ x[m, d] · panel[d, c] over columns, of 16 bits in 32: two columns stand beside each other in a panel, as
    integers of the kind ``stored``."""
    x, of_row, panel = places
    kind, dot, size = vector(I16, 2 * lanes(line)), _dot_of(line), stored.width // 8
    inputs = [builder.add(x, builder.mul(of_row, I64(m))) for m in range(rows)]

    def pair(at: Any, now: list[Any]) -> list[Any]:
        offset = builder.mul(at, I64(size * VECTORS * lanes(line)))
        weights = _weights(builder, vector(stored, kind.count), builder.add(panel, offset))
        if ahead is not None:
            emit.prefetch(builder, builder.add(ahead, offset), 0)
            weights = [builder.sext(own, kind) for own in weights]
        step, following = builder.mul(at, I64(2)), list[Any]()
        for m, base in enumerate(inputs):
            own = emit.spread(builder, emit.load(builder, I32, builder.add(base, step)), lanes(line))
            own = builder.bitcast(own, kind)
            following += [dot(builder, now[VECTORS * m + n], own, w) for n, w in enumerate(weights)]
        return following

    zero = [emit.ones(I32, lanes(line), 0)] * (VECTORS * rows)
    return emit.loop(builder, first, last, 2, zero, pair)


def _fours(
    builder: Any, line: Line, rows: int, places: tuple[Any, Any, Any, Any, Any], count: Any, ahead: Any
) -> list[Any]:
    """The sums of `_pairs` by half as many products: x₁w₁ + x₃w₃ = (x₁ + w₃)(x₃ + w₁) − x₁x₃ − w₁w₃, of which the
    last two are sums of a row each, known before. Sums may run over 32 bits on the way.

    After Winograd, "A New Algorithm for Inner Product" (1968). A CPU that multiplies two vectors in a cycle and adds
    four does both at once this way, where as many products as sums would wait for each other.
    """
    x, of_row, x_crossed, panel, w_crossed = places
    kind, dot = vector(I16, 2 * lanes(line)), _dot_of(line)
    inputs = [builder.add(x, builder.mul(of_row, I64(m))) for m in range(rows)]

    def four(at: Any, now: list[Any]) -> list[Any]:
        offset = builder.mul(at, I64(VECTORS * lanes(line)))
        emit.prefetch(builder, builder.add(ahead, offset), 0)
        place = builder.add(panel, offset)
        stored = [builder.add(place, I64(n * VECTORS * kind.count)) for n in (0, 1)]
        weights = [[builder.sext(w, kind) for w in _weights(builder, vector(I8, kind.count), own)] for own in stored]
        step, following = builder.mul(at, I64(2)), list[Any]()
        for m, base in enumerate(inputs):
            words = [emit.load(builder, I32, builder.add(base, step), 4 * n) for n in (0, 1)]
            both = [builder.bitcast(emit.spread(builder, own, lanes(line)), kind) for own in words]
            for n in range(VECTORS):
                own = [builder.add(both[k], weights[1 - k][n]) for k in (0, 1)]
                following.append(dot(builder, now[VECTORS * m + n], *own))
        return following

    zero = [emit.ones(I32, lanes(line), 0)] * (VECTORS * rows)
    sums = emit.loop(builder, I64(0), count, 4, zero, four)
    of_weights = [emit.load(builder, sums[0].type, w_crossed, 4 * lanes(line) * n) for n in range(VECTORS)]
    for n, total in enumerate(sums):
        of_x = emit.spread(builder, emit.load(builder, I32, x_crossed, 4 * (n // VECTORS)), lanes(line))
        sums[n] = builder.sub(total, builder.add(of_x, of_weights[n % VECTORS]))
    return sums


def _vnni(builder: Any, sums: Any, a: Any, b: Any) -> Any:
    """vpdpwssd."""
    words = [builder.bitcast(each, sums.type) for each in (a, b)]
    return emit.call(builder, f"llvm.x86.avx512.vpdpwssd.{32 * sums.type.count}", sums.type, sums, *words)


def _madd(builder: Any, sums: Any, a: Any, b: Any) -> Any:
    """vpmaddwd."""
    return builder.add(sums, emit.call(builder, "llvm.x86.avx2.pmadd.wd", sums.type, a, b))


def _any(builder: Any, sums: Any, a: Any, b: Any) -> Any:
    wide = vector(I32, a.type.count)
    each = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    even, odd = (builder.shuffle_vector(each, each, emit.lanes_of(range(n, wide.count, 2))) for n in (0, 1))
    return builder.add(sums, builder.add(even, odd))


def _dot_of(line: Line) -> Callable[[Any, Any, Any, Any], Any]:
    """(builder, sums, a, b) -> sums + two products of 16-bit numbers a lane."""
    return {"avx512": _vnni, "avxvnni": _vnni, "avx2": _madd}.get(line.name, _any)


def _weights(builder: Any, kind: Any, place: Any) -> list[Any]:
    """A row of a panel, or what belongs to one."""
    size = {FLOAT: 4, I16: 2, I8: 1}[kind.element] * kind.count
    return [emit.load(builder, kind, place, size * n) for n in range(VECTORS)]


def _places(builder: Any, out: Any, of_out: Any, rows: int, line: Line) -> list[Any]:
    """Where the vectors of a tile of out are."""
    firsts = [builder.add(out, builder.mul(of_out, I64(m))) for m in range(rows)]
    return [builder.add(first, I64(4 * lanes(line) * n)) for first in firsts for n in range(VECTORS)]


def tile_of(name: str, emit: Callable[..., None], arguments: int, line: Line, rows: int | None = None) -> Any:
    """A function of a tuple of so many integers that compiled code calls."""
    return kernel_of(f"tile.{name}", emit, line, rows_of(line) if rows is None else rows, arguments)


floats_tile = tile_of("floats", emit_floats, 8, line())
floats_anew = tile_of("floats.anew", partial(emit_floats, anew=True), 8, line())
rows_tile = tile_of("rows", emit_rows, 11, line(), INTEGER_ROWS)
four_rows_tile = tile_of("rows", emit_rows, 11, line(), FOUR)
blocks_tile = tile_of("blocks", partial(emit_blocks, False), 11, line())
shifted_tile = tile_of("shifted", partial(emit_blocks, True), 11, line())
