"""The innermost loop of a pass over several rows, spelled out for LLVM: two rows of weights with 1, 4 or 8 rows of x.

Axes: R rows, D width.

Left to itself LLVM keeps the sums of one row of weights in registers, and loads a row of x for each multiplication.
Here two rows of weights share each load of x, which are then 2·R sums of 16 lanes, or of 8 where vectors are shorter
and registers fewer. The sum of one row of weights with
one row of x is taken in the same order for every R, so it does not depend on what else is in the batch.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped

from transpect.runtime.compiling import compiled, intrinsic
from transpect.runtime.numeric import widen
from transpect.runtime.products.cpu import line

Array = Any
cgutils: Any = untyped
LANES = 16 if line().width == 64 else 8
MOST = 8 if LANES == 16 else 4
"""Rows whose sums registers hold."""
AHEAD = 1024
"""How many bytes ahead weights are asked for where rows keep the loop so busy that memory would wait on it; with fewer
rows it finds its way by itself."""

_FLOAT, _I16, _I32, _I64 = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_LANES, _HALVES, _WORDS = (ir.VectorType(kind, LANES) for kind in (_FLOAT, _I16, _I32))
_BYTE = ir.IntType(8).as_pointer()


def _products(rows: int) -> Any:
    def pair(context: Any, w: Any, i: Any, v: Any, j: Any, x: Any, start: Any, out: Any, to: Any, apart: Any) -> Any:
        """out[to:] ← w[i] · x[start:], out[to + apart:] ← v[j] · x[start:], but for the last D mod `LANES` columns."""
        integer = types.int64
        signature = types.void(w, integer, v, integer, x, integer, out, integer, integer)
        return signature, lambda context, builder, signature, args: _emit(rows, context, builder, signature, args)

    return intrinsic(pair)


def _emit(rows: int, context: Any, builder: Any, signature: Any, args: Any) -> Any:
    stored = signature.args[0].dtype
    w, v, x, out = (context.make_array(signature.args[n])(context, builder, args[n]) for n in (0, 2, 4, 6))
    size = 2 if stored == types.uint16 else 4
    weights = [_row(builder, array, args[n]) for array, n in ((w, 1), (v, 3))]
    inputs = [_row(builder, x, builder.add(args[5], _I64(row))) for row in range(rows)]
    columns = builder.and_(cgutils.unpack_tuple(builder, w.shape)[1], _I64(-LANES))

    before, body, after = builder.block, builder.append_basic_block("columns"), builder.append_basic_block("sums")
    builder.cbranch(builder.icmp_signed(">", columns, _I64(0)), body, after)
    builder.position_at_end(body)
    column = builder.phi(_I64)
    sums = [builder.phi(_LANES) for _ in range(2 * rows)]
    fma = _function(builder, f"llvm.fma.v{LANES}f32", _LANES, _LANES, _LANES, _LANES)
    prefetch = _function(builder, "llvm.prefetch.p0", ir.VoidType(), _BYTE, _I32, _I32, _I32)
    read = []
    for base in weights:
        place = builder.add(base, builder.mul(column, _I64(size)))
        read.append(_widened(builder, place, size))
        if rows == MOST:
            ahead = builder.inttoptr(builder.add(place, _I64(AHEAD)), _BYTE)
            builder.call(prefetch, [ahead, _I32(0), _I32(3), _I32(1)])
    following = list[Any](sums)
    for row, base in enumerate(inputs):
        place = builder.inttoptr(builder.add(base, builder.mul(column, _I64(4))), _LANES.as_pointer())
        lanes = builder.load(place, align=4)
        for which, own in enumerate(read):
            n = which * rows + row
            following[n] = builder.call(fma, [own, lanes, sums[n]])
    further = builder.add(column, _I64(LANES))
    zero = ir.Constant(_LANES, [0.0] * LANES)
    for phi, begin, go_on in ((column, _I64(0), further), *zip(sums, [zero] * len(sums), following, strict=True)):
        phi.add_incoming(begin, before)
        phi.add_incoming(go_on, body)
    builder.cbranch(builder.icmp_signed("<", further, columns), body, after)

    builder.position_at_end(after)
    total = _function(builder, f"llvm.vector.reduce.fadd.v{LANES}f32", _FLOAT, _FLOAT, _LANES)
    finals = [builder.phi(_LANES) for _ in following]
    first = builder.add(builder.ptrtoint(out.data, _I64), builder.shl(args[7], _I64(2)))
    second = builder.add(first, builder.shl(args[8], _I64(2)))
    for n, (final, last) in enumerate(zip(finals, following, strict=True)):
        final.add_incoming(zero, before)
        final.add_incoming(last, body)
        place = builder.add(first if n < rows else second, _I64(4 * (n % rows)))
        place = builder.inttoptr(place, _FLOAT.as_pointer())
        builder.store(builder.call(total, [_FLOAT(0.0), final], fastmath=("reassoc",)), place)
    return context.get_dummy_value()


def _row(builder: Any, array: Any, row: Any) -> Any:
    """The address of a row."""
    stride = cgutils.unpack_tuple(builder, array.strides)[0]
    return builder.add(builder.ptrtoint(array.data, _I64), builder.mul(row, stride))


def _widened(builder: Any, place: Any, size: int) -> Any:
    """Weights as float32."""
    if size == 4:
        return builder.load(builder.inttoptr(place, _LANES.as_pointer()), align=4)
    halves = builder.load(builder.inttoptr(place, _HALVES.as_pointer()), align=2)
    words = builder.shl(builder.zext(halves, _WORDS), ir.Constant(_WORDS, [16] * LANES))
    return builder.bitcast(words, _LANES)


def _function(builder: Any, name: str, result: Any, *parameters: Any) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, parameters), name)


_one, _four, _most = _products(1), _products(4), _products(MOST)


@compiled
def pair(w: Array, i: int, v: Array, j: int, x: Array, start: int, rows: int, out: Array) -> None:
    """out[:R] ← w[i] · x[start : start + R], out[R : 2·R] ← v[j] · the same, for R = 1, 4 or 8."""
    if rows == 1:
        _one(w, i, v, j, x, start, out, 0, 1)
    elif rows == MOST == 8:
        _most(w, i, v, j, x, start, out, 0, 8)
    else:
        for r in range(0, rows, 4):
            _four(w, i, v, j, x, start + r, out, r, rows)
    width = w.shape[1]
    for d in range(width - width % LANES, width):
        for r in range(rows):
            out[r] += widen(w[i, d]) * x[start + r, d]
            out[rows + r] += widen(v[j, d]) * x[start + r, d]
