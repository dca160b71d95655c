"""Products of many rows are those of the numbers that weights stand for: every format, width and remainder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from transpect.runtime.compiling import compiled
from transpect.runtime.products import (
    Q4_0,
    Q4_1,
    Q4_K,
    Q6_K,
    Q8_0,
    Int4Groups,
    Int4Shifted,
    Int8Groups,
    Int8Rows,
    WordBlocks,
    Words,
    multiply,
    quantise,
    room_for,
    words,
)
from transpect.runtime.products.attending import emit_largest, emit_mixed, emit_scores, emit_shares
from transpect.runtime.products.cpu import LINES, Line
from transpect.runtime.products.eights import emit_eight
from transpect.runtime.products.kernel import address
from transpect.runtime.products.packing import emit_panel
from transpect.runtime.products.plain import columns, number
from transpect.runtime.products.softmax import emit_softmax, emit_total, softmax_tile
from transpect.runtime.products.tiles import COLUMNS, ROWS, emit_blocks, emit_floats, emit_rows

Array = Any
GENERATOR = np.random.default_rng(0)
ROOM = 2 * ROWS + 2


@compiled
def product(w: Any, n: int, x: Any, rows: int, room: Array, out: Array) -> None:
    for first in range(0, n, COLUMNS):
        multiply(w, first, min(COLUMNS, n - first), x, rows, room, out)


@compiled
def to_integers(x: Array, width: int, last: int, to: Any) -> None:
    quantise(x, width, 0, last, to)


@compiled
def numbers(w: Any, n: int, out: Array) -> None:
    for i in range(n):
        for d in range(columns(w)):
            out[i, d] = number(w, i, d)


def rows_of(width: int) -> Array:
    x = GENERATOR.standard_normal((3 * ROWS, width + 32)).astype(np.float32)
    x[2], x[1, 0] = 0, 1e5
    return x


def multiplied(w: Any, n: int, x: Any, rows: int) -> Array:
    """On top of ones; nothing else is written."""
    out = np.ones((3 * ROWS, n + 32), np.float32)
    product(w, n, x, rows, np.empty(room_for(w), np.float32), out)
    assert (out[-(-rows // ROWS) * ROWS :] == 1).all() and (out[:, -(-n // COLUMNS) * COLUMNS :] == 1).all()
    assert (out[:rows, n:] == 1).all()
    return out[:rows, :n] - 1


@pytest.mark.parametrize("rows", [1, ROWS, ROWS + 1, ROOM])
@pytest.mark.parametrize(("n", "width"), [(1, 1), (COLUMNS, 255), (COLUMNS + 1, 256), (3 * COLUMNS - 1, 600)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_floats(dtype: Any, n: int, width: int, rows: int) -> None:
    numbers = GENERATOR.standard_normal((n, width)).astype(np.float32)
    bits = numbers.view(np.uint32) & np.uint32(0xFFFF0000)
    w, exact = (numbers, numbers) if dtype is np.float32 else ((bits >> 16).astype(np.uint16), bits.view(np.float32))
    x = rows_of(width)
    expected = x[:rows, :width].astype(np.float64) @ exact.T.astype(np.float64)
    size = abs(x[:rows, :width]).astype(np.float64) @ abs(exact.T)
    assert (abs(multiplied(w, n, x, rows) - expected) <= 2e-6 * (1 + size)).all()


@pytest.mark.parametrize("rows", [1, ROOM])
@pytest.mark.parametrize(("n", "width"), [(1, 1), (COLUMNS + 1, 511), (COLUMNS, 512), (COLUMNS - 1, 1025)])
def test_int8_rows_are_exact(n: int, width: int, rows: int) -> None:
    """The largest numbers too, whose sums are just within 32 bits."""
    weight = GENERATOR.integers(-128, 128, (n, width), dtype=np.int8)
    weight[0] = -128
    w, x = Int8Rows.of(weight, GENERATOR.random(n, np.float32)), rows_of(width)
    x[0] = -1
    to = words(w, 3 * ROWS)
    assert isinstance(to, Words)
    to_integers(x, width, rows, to)
    exact = to.value[:rows, :width].astype(np.int64) @ weight.T.astype(np.int64)
    expected = (exact * (w.scale.astype(np.float64) * to.scale[:rows, None])).astype(np.float32)
    assert np.array_equal(multiplied(w, n, to, rows), (1 + expected) - 1)


def of_blocks(kind: Any, n: int, count: int) -> Any:
    def some(*shape: int) -> Array:
        return GENERATOR.integers(0, 256, shape).astype(np.uint8)

    scale = GENERATOR.random((n, count)).astype(np.float32)
    halves = scale.astype(np.float16).view(np.uint16)
    if kind is Int8Groups:
        return Int8Groups.of(some(n, 32 * count).view(np.int8), scale)
    if kind is Int4Groups:
        return Int4Groups.of(some(n, 16 * count), halves)
    if kind is Int4Shifted:
        return Int4Shifted.of(some(n, 16 * count), halves, some(n, count) % 16)
    size, wide, places = {
        Q8_0: (34, 32, (0,)),
        Q4_0: (18, 32, (0,)),
        Q4_1: (20, 32, (0, 2)),
        Q4_K: (144, 256, (0, 2)),
        Q6_K: (210, 256, (208,)),
    }[kind]
    packed = some(n, 32 * count // wide, size)
    for place in places:
        half = GENERATOR.random(packed.shape[:2]).astype(np.float16)
        packed[:, :, place : place + 2] = half[:, :, None].view(np.uint8)
    return kind(packed.reshape(n, -1))


@pytest.mark.parametrize("rows", [1, ROOM])
@pytest.mark.parametrize("kind", [Int8Groups, Int4Groups, Int4Shifted, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K])
def test_blocks(kind: Any, rows: int) -> None:
    n, count = COLUMNS + 3, 16
    w, x = of_blocks(kind, n, count), rows_of(32 * count)
    to = words(w, 3 * ROWS)
    assert isinstance(to, WordBlocks)
    to_integers(x, 32 * count, rows, to)
    scales = to.scale[:rows, :count].repeat(32, 1).astype(np.float64)
    back = to.value[:rows, : 32 * count] * scales
    assert (abs(back - x[:rows, : 32 * count]) <= 0.501 * scales).all()
    weight = np.zeros((n, 32 * count), np.float32)
    numbers(w, n, weight)
    size = abs(back) @ abs(weight.T)
    assert (abs(multiplied(w, n, to, rows) - back @ weight.T.astype(np.float64)) <= 2e-6 * (1 + size)).all()


@compiled
def softmax(scores: Array, count: int, most: Array, total: Array, factor: Array) -> None:
    places = address(most, 0), address(total, 0), address(factor, 0)
    softmax_tile((address(scores, 0), 4 * scores.shape[1], count, *places))


def test_softmax_goes_on() -> None:
    """In two parts it is that of the whole, also where nothing of a part is seen."""
    scores = (20 * GENERATOR.standard_normal((50, COLUMNS))).astype(np.float32)
    scores[:30, 1], scores[30:, 2], scores[::2, 3], scores[7, 4] = -np.inf, -np.inf, -np.inf, np.nan
    expected = np.exp(scores.astype(np.float64) - scores.max(0))
    most, total = np.full(COLUMNS, -1e30, np.float32), np.zeros(COLUMNS, np.float32)
    factor, found = np.zeros(COLUMNS, np.float32), scores.copy()
    softmax(found, 30, most, total, factor)
    softmax(found[30:], 20, most, total, factor)
    found[:30] *= factor
    assert np.isnan(total).tolist() == [q == 4 for q in range(COLUMNS)]
    good = np.arange(COLUMNS) != 4
    assert np.array_equal(most[good], scores.max(0)[good])
    assert np.allclose(total[good], expected.sum(0)[good], rtol=1e-6)
    assert np.allclose(found[:, good], expected[:, good], rtol=1e-5, atol=1e-30)
    assert (found[np.isneginf(scores)] == 0).all()


TILES: dict[str, tuple[Callable[..., None], int]] = {
    "floats": (emit_floats, 8),
    "floats anew": (partial(emit_floats, anew=True), 8),
    "rows": (emit_rows, 11),
    "panel": (emit_panel, 5),
    "eight": (emit_eight, 10),
    "blocks": (partial(emit_blocks, True), 11),
    "softmax": (emit_softmax, 6),
    "total": (emit_total, 4),
    "scores": (emit_scores, 11),
    "mixed": (emit_mixed, 11),
    "shares": (emit_shares, 2),
    "largest": (emit_largest, 3),
}
DOT = {"avx512": "vpdpwssd", "avxvnni": "vpdpwssd", "avx2": "vpmaddwd", "i8mm": "smull", "dotprod": "smull"}


@pytest.mark.parametrize("line", [each for each in LINES if each.width], ids=lambda each: each.name)
def test_every_line_is_assembled(line: Line) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = ",".join(f"+{each}" for each in line.needs)
    triple = f"{line.triple}-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=line.cpu, features=features, opt=2)
    for name, (emit, arguments) in TILES.items():
        if name == "eight" and line.wide is None:
            continue
        module = ir.Module()
        module.triple = triple
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * arguments)
        function = ir.Function(module, kind, name)
        builder = ir.IRBuilder(function.append_basic_block())
        emit(builder, line, 2, function.args)
        builder.ret_void()
        text = machine.emit_assembly(llvm.parse_assembly(str(module)))
        if name in ("rows", "blocks", "eight"):
            assert DOT[line.name] in text, text
