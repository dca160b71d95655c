"""LLVM's language, as far as products need it: vectors, loops, loads and sums across lanes.

Addresses are 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils as _untyped

_cgutils: Any = _untyped
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_AS_WRITTEN = ("arcp",)
"""A freedom that is void here. To what has none numba gives those of the function around it, and LLVM would take sums
in another order for one row than for four."""
BYTE = I8.as_pointer()


def vector(kind: Any, count: int) -> Any:
    """The type of so many."""
    return ir.VectorType(kind, count)


def ones(kind: Any, count: int, value: float) -> Any:
    """A constant that is the same in all lanes."""
    return ir.Constant(vector(kind, count), [value] * count)


def lanes_of(places: Iterable[int]) -> Any:
    """The constant that tells `shuffle_vector` where each lane comes from."""
    wanted = list(places)
    return ir.Constant(vector(I32, len(wanted)), wanted)


def call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Call one of LLVM's intrinsics by its full name."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(_cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def plus(builder: Any, a: Any, b: Any) -> Any:
    """a + b in this place: see `_AS_WRITTEN`."""
    return builder.fadd(a, b, flags=_AS_WRITTEN)


def minus(builder: Any, a: Any, b: Any) -> Any:
    """a − b in this place."""
    return builder.fsub(a, b, flags=_AS_WRITTEN)


def times(builder: Any, a: Any, b: Any) -> Any:
    """a·b in this place."""
    return builder.fmul(a, b, flags=_AS_WRITTEN)


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, rounded once."""
    return call(builder, f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)


def load(builder: Any, kind: Any, address: Any, more: int = 0) -> Any:
    """From an address that need not be aligned."""
    place = builder.add(address, I64(more)) if more else address
    return builder.load(builder.inttoptr(place, kind.as_pointer()), align=1)


def store(builder: Any, value: Any, address: Any) -> None:
    """To an address of numbers."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def prefetch(builder: Any, address: Any, more: int) -> None:
    """Ask memory for what stands so many bytes ahead."""
    place = builder.inttoptr(builder.add(address, I64(more)), BYTE)
    call(builder, "llvm.prefetch.p0", ir.VoidType(), place, I32(0), I32(3), I32(1))


def opaque(builder: Any, value: Any) -> Any:
    """The same 64-bit integer, of which LLVM does not know that it is."""
    kind = ir.FunctionType(I64, [I64])
    return builder.asm(kind, "", "=r,0", [value], side_effect=False)


def spread(builder: Any, value: Any, count: int) -> Any:
    """A number in all lanes."""
    single = builder.insert_element(ir.Constant(vector(value.type, count), ir.Undefined), value, I32(0))
    return builder.shuffle_vector(single, single, lanes_of([0] * count))


def repeated(builder: Any, value: Any, times: int) -> Any:
    """Each lane so many times: a, b -> a, a, b, b."""
    return builder.shuffle_vector(value, value, lanes_of(n for n in range(value.type.count) for _ in range(times)))


def gathered(builder: Any, values: Sequence[Any]) -> Any:
    """Numbers as lanes."""
    whole = ir.Constant(vector(values[0].type, len(values)), ir.Undefined)
    for n, value in enumerate(values):
        whole = builder.insert_element(whole, value, I32(n))
    return whole


def halves(builder: Any, value: Any) -> list[Any]:
    """The lower and the upper lanes."""
    half = value.type.count // 2
    return [builder.shuffle_vector(value, value, lanes_of(range(n, n + half))) for n in (0, half)]


def joined(builder: Any, parts: Sequence[Any]) -> Any:
    """Vectors one after another; a power of two of them."""
    parts = list(parts)
    while len(parts) > 1:
        whole = lanes_of(range(2 * parts[0].type.count))
        parts = [builder.shuffle_vector(a, b, whole) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def loop(
    builder: Any, first: Any, last: Any, step: int, carried: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """for at in range(first, last, step): carried = body(at, carried); what is carried in the end."""
    before, inner, after = builder.block, builder.append_basic_block("step"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", first, last), inner, after)
    builder.position_at_end(inner)
    at, now = builder.phi(I64), [builder.phi(value.type) for value in carried]
    following, further = body(at, now), builder.add(at, I64(step))
    end = builder.block
    for phi, begin, go_on in ((at, first, further), *zip(now, carried, following, strict=True)):
        phi.add_incoming(begin, before)
        phi.add_incoming(go_on, end)
    builder.cbranch(builder.icmp_signed("<", further, last), inner, after)
    builder.position_at_end(after)
    results = []
    for begin, value in zip(carried, following, strict=True):
        result = builder.phi(value.type)
        result.add_incoming(begin, before)
        result.add_incoming(value, end)
        results.append(result)
    return results


def sums(builder: Any, vectors: Sequence[Any]) -> Any:
    """The sum of each vector's lanes, as lanes: a power of two of vectors of one type.

    Neighbours are added, then neighbours of the results: in one order however many vectors there are.
    """
    lanes = vectors[0].type.count
    if len(vectors) > lanes:
        half = len(vectors) // 2
        return joined(builder, [sums(builder, vectors[:half]), sums(builder, vectors[half:])])
    parts = list(vectors)
    add = builder.add if isinstance(vectors[0].type.element, ir.IntType) else partial(plus, builder)
    while len(parts) > 1:
        parts = [add(*_even_and_odd(builder, a, b)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    whole = parts[0]
    while whole.type.count > len(vectors):
        neighbours = [lanes_of(range(n, whole.type.count, 2)) for n in (0, 1)]
        whole = add(*(builder.shuffle_vector(whole, whole, places) for places in neighbours))
    return whole


def _even_and_odd(builder: Any, a: Any, b: Any) -> list[Any]:
    both = 2 * a.type.count
    return [builder.shuffle_vector(a, b, lanes_of(range(n, both, 2))) for n in (0, 1)]


def partly(builder: Any, address: Any, count: Any, size: int) -> Any:
    """The first ``count`` bytes, and 0 after them up to ``size``; nothing behind them is read."""
    kind = vector(I8, size)
    room = _cgutils.alloca_once(builder, kind)
    builder.store(ir.Constant(kind, [0] * size), room, align=1)
    _cgutils.raw_memcpy(builder, builder.bitcast(room, BYTE), builder.inttoptr(address, BYTE), count, 1)
    return builder.load(room, align=1)


def room(builder: Any, kind: Any, count: int) -> Any:
    """The address of room for so many."""
    return builder.ptrtoint(_cgutils.alloca_once(builder, vector(kind, count)), I64)


def turned(builder: Any, rows: Sequence[Any]) -> list[Any]:
    """[n, g, n] -> [n, g, n] with the last axis outermost: of n vectors of g groups of n lanes each group is
    transposed, in steps that swap ever larger parts of neighbours."""
    return _turned(builder, rows, len(rows), 1)


def _turned(builder: Any, rows: Sequence[Any], group: int, size: int) -> list[Any]:
    if len(rows) == 1:
        return list(rows)
    parts = [_zipped(builder, a, b, group, size) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    return [own for half in zip(*parts, strict=True) for own in _turned(builder, half, group, 2 * size)]


def _zipped(builder: Any, a: Any, b: Any, group: int, size: int) -> list[Any]:
    """So many lanes of one, and as many of the other, in turns: the first halves of each group, and the second ones."""
    count, parts = a.type.count, list[Any]()
    for half in (0, group // 2):
        starts = [own + n for own in range(0, count, group) for n in range(half, half + group // 2, size)]
        places = [start + other + n for start in starts for other in (0, count) for n in range(size)]
        parts.append(builder.shuffle_vector(a, b, lanes_of(places)))
    return parts


def widened(builder: Any, value: Any, count: int) -> Any:
    """With zeros behind, up to so many lanes."""
    lanes = value.type.count
    if lanes == count:
        return value
    zeros = ir.Constant(value.type, [0] * lanes)
    return builder.shuffle_vector(value, zeros, lanes_of(min(n, lanes) for n in range(count)))
