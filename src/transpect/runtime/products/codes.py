"""How each format writes its weights: the code that reads four blocks of a row at once, or one.

A block is 32 columns. A weight is scale·(q − zero) − minimum, where q is an unsigned byte, or scale·fine·(q − zero)
with a small integer for each 16 columns. The layouts of GGUF's blocks are those of ggml
(ggml-common.h and ggml-quants.c).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.emit import FLOAT, HALF, I8, I16, I32, I64, vector
from transpect.runtime.products.formats import BLOCK, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0, Int4Groups, Int4Shifted, Int8Groups

TOGETHER = 4
"""Blocks that are read at once where vectors have 64 bytes."""
Scales = tuple[Any, Any]
"""Of some blocks `Read.scale` and `Read.minimum`."""


@dataclass(frozen=True)
class Read:
    """Some blocks of a row of weights.

    Attributes:
        codes: q. Of four blocks two vectors, of all first halves and of all second halves; of one block one vector.
        scale: a float32 for each block.
        minimum: the same, or None.
        fine: for each vector of ``codes`` an int32 for each of its 16 columns, or None.
    """

    codes: Sequence[Any]
    scale: Any
    minimum: Any = None
    fine: Sequence[Any] | None = None


@dataclass(frozen=True)
class Code:
    """A format.

    Attributes:
        read: (builder, addresses of the row in each of the format's arrays, which block, how many) -> `Read`.
        size: bytes in the format's first array, of
        times: so many blocks of 32 columns.
        zero: what is taken from every q.
        apart: whether the halves of a block are its even and its odd columns, not the first 16 and the others.
        small: whether q is under 128.
        shifted: whether there is a minimum.
        fine: whether 16 columns have a scale of their own.
        scales: likewise to `Scales` alone, of as many blocks as one likes; None where blocks lie in larger ones.
    """

    read: Callable[[Any, Sequence[Any], Any, int], Read]
    size: int
    times: int = 1
    zero: int = 0
    apart: bool = False
    small: bool = True
    shifted: bool = False
    fine: bool = False
    scales: Callable[[Any, Sequence[Any], Any, int], Scales] | None = None


def _int8_groups(builder: Any, row: Sequence[Any], block: Any, count: int) -> Read:
    codes = _whole(builder, _at(builder, row[0], block, BLOCK), count, 2 * BLOCK)
    return Read(_unsigned(builder, codes), emit.load(builder, vector(FLOAT, count), _at(builder, row[1], block, 4)))


def _int4_groups(builder: Any, row: Sequence[Any], block: Any, count: int) -> Read:
    raw = emit.load(builder, vector(I8, 16 * count), _at(builder, row[0], block, 16))
    return Read(_nibbles(builder, raw, count), *_of_int4_groups(builder, row, block, count))


def _of_int4_groups(builder: Any, row: Sequence[Any], block: Any, count: int) -> Scales:
    return _floats(builder, emit.load(builder, vector(I16, count), _at(builder, row[1], block, 2))), None


def _int4_shifted(builder: Any, row: Sequence[Any], block: Any, count: int) -> Read:
    codes = _int4_groups(builder, row, block, count).codes
    return Read(codes, *_of_int4_shifted(builder, row, block, count))


def _of_int4_shifted(builder: Any, row: Sequence[Any], block: Any, count: int) -> Scales:
    scale, _ = _of_int4_groups(builder, row, block, count)
    zero = emit.load(builder, vector(I8, count), _at(builder, row[2], block, 1))
    return scale, emit.times(builder, scale, builder.uitofp(zero, vector(FLOAT, count)))


def _q8_0(builder: Any, row: Sequence[Any], block: Any, count: int) -> Read:
    places = _places(builder, row[0], block, count, 34)
    parts = [emit.load(builder, vector(I8, BLOCK), place, 2) for place in places]
    codes = _halved(builder, [emit.joined(builder, parts[n : n + 2]) for n in (0, 2)]) if count > 1 else parts
    return Read(_unsigned(builder, codes), _half_floats(builder, places, 0))


def _q4_0(builder: Any, row: Sequence[Any], block: Any, count: int) -> Read:
    places = _places(builder, row[0], block, count, 18)
    raw = emit.joined(builder, [emit.load(builder, vector(I8, 16), place, 2) for place in places])
    return Read(_nibbles(builder, raw, count), *_of_q4_0(builder, row, block, count))


def _of_q4_0(builder: Any, row: Sequence[Any], block: Any, count: int) -> Scales:
    return _half_floats(builder, _places(builder, row[0], block, count, 18), 0), None


def _q4_1(builder: Any, row: Sequence[Any], block: Any, count: int) -> Read:
    places = _places(builder, row[0], block, count, 20)
    raw = emit.joined(builder, [emit.load(builder, vector(I8, 16), place, 4) for place in places])
    return Read(_nibbles(builder, raw, count), *_of_q4_1(builder, row, block, count))


def _of_q4_1(builder: Any, row: Sequence[Any], block: Any, count: int) -> Scales:
    places = _places(builder, row[0], block, count, 20)
    return _half_floats(builder, places, 0), builder.fneg(_half_floats(builder, places, 2))


def _q4_k(builder: Any, row: Sequence[Any], block: Any, count: int) -> Read:
    """d, dmin, 12 bytes of 6-bit scales and minima, 128 bytes: 32 columns low, the next 32 high."""
    place, inner = _super_block(builder, row[0], block, 144)
    words = [emit.load(builder, I32, place, 4 + 4 * n) for n in range(3)]
    first = [builder.and_(word, I32(0x3F3F3F3F)) for word in words[:2]]
    low = builder.and_(words[2], I32(0x0F0F0F0F)), builder.and_(builder.lshr(words[2], I32(4)), I32(0x0F0F0F0F))
    upper = [builder.and_(builder.lshr(word, I32(2)), I32(0x30303030)) for word in words[:2]]
    early = builder.icmp_signed("<", inner, I64(4))
    numbers = []
    for n, offset in enumerate((0, 2)):
        word = builder.select(early, first[n], builder.or_(low[n], upper[n]))
        if count == 1:
            which = builder.trunc(builder.and_(inner, I64(3)), I32)
            word = builder.lshr(word, builder.mul(which, I32(8)))
        bytes_ = builder.bitcast(word, vector(I8, 4))
        own = builder.shuffle_vector(bytes_, bytes_, emit.lanes_of(range(count)))
        whole = emit.spread(builder, builder.fpext(emit.load(builder, HALF, place, offset), FLOAT), count)
        numbers.append(emit.times(builder, builder.uitofp(own, vector(FLOAT, count)), whole))
    if count == 1:
        raw = emit.load(builder, vector(I8, 32), _at(builder, place, builder.lshr(inner, I64(1)), 32), 16)
        return Read([_bits(builder, raw, builder.mul(builder.and_(inner, I64(1)), I64(4)), 15)], *numbers)
    raw = emit.load(builder, vector(I8, 64), _at(builder, place, inner, 16), 16)
    nibbles = _nibbles(builder, raw, count)
    return Read([_quarters(builder, nibbles, places) for places in ((0, 4, 2, 6), (1, 5, 3, 7))], *numbers)


def _q6_k(builder: Any, row: Sequence[Any], block: Any, count: int) -> Read:
    """128 bytes of low nibbles, 64 of upper pairs of bits, 16 scales, d."""
    place, inner = _super_block(builder, row[0], block, 210)
    whole = emit.spread(builder, builder.fpext(emit.load(builder, HALF, place, 208), FLOAT), count)
    fine = emit.load(builder, vector(I8, 2 * count), _at(builder, place, inner, 2), 192)
    fine = builder.sext(fine, vector(I32, 2 * count))
    half, which = builder.lshr(inner, I64(2)), builder.and_(inner, I64(3))
    upper = emit.load(builder, vector(I8, 32), _at(builder, place, half, 32), 128)
    lower = _at(builder, place, half, 64)
    if count == 1:
        raw = emit.load(builder, vector(I8, 32), _at(builder, lower, builder.and_(which, I64(1)), 32))
        four = _bits(builder, raw, builder.mul(builder.lshr(which, I64(1)), I64(4)), 15)
        two = _bits(builder, upper, builder.mul(which, I64(2)), 3)
        return Read([builder.or_(four, _times_16(builder, two))], whole, fine=[fine])
    nibbles = _nibbles(builder, emit.load(builder, vector(I8, 64), lower), count)
    pairs = [_bits(builder, upper, I64(shift), 3) for shift in (0, 2, 4, 6)]
    codes = [
        builder.or_(four, _times_16(builder, emit.joined(builder, two)))
        for four, two in zip(nibbles, (pairs[:2], pairs[2:]), strict=True)
    ]
    each = [builder.shuffle_vector(fine, fine, emit.lanes_of(range(n, 8, 2))) for n in (0, 1)]
    return Read(_halved(builder, codes), whole, fine=each)


def _at(builder: Any, base: Any, index: Any, size: int) -> Any:
    return builder.add(base, builder.mul(index, I64(size)))


def _places(builder: Any, base: Any, block: Any, count: int, size: int) -> list[Any]:
    first = _at(builder, base, block, size)
    return [builder.add(first, I64(n * size)) for n in range(count)]


def _super_block(builder: Any, base: Any, block: Any, size: int) -> tuple[Any, Any]:
    """Where the 256 columns of a block begin, and which block of theirs it is."""
    return _at(builder, base, builder.lshr(block, I64(3)), size), builder.and_(block, I64(7))


def _floats(builder: Any, bits: Any) -> Any:
    """float16 by their bits as float32."""
    count = bits.type.count
    return builder.fpext(builder.bitcast(bits, vector(HALF, count)), vector(FLOAT, count))


def _half_floats(builder: Any, places: Sequence[Any], more: int) -> Any:
    return _floats(builder, emit.gathered(builder, [emit.load(builder, I16, place, more) for place in places]))


def _whole(builder: Any, place: Any, count: int, size: int) -> list[Any]:
    """Blocks of bytes as they stand."""
    if count == 1:
        return [emit.load(builder, vector(I8, BLOCK), place)]
    return _halved(builder, [emit.load(builder, vector(I8, size), place, n * size) for n in (0, 1)])


def _halved(builder: Any, pairs: Sequence[Any]) -> list[Any]:
    """Two blocks, two blocks -> the first halves of all, the second halves."""
    return [_quarters(builder, pairs, places) for places in ((0, 2, 4, 6), (1, 3, 5, 7))]


def _quarters(builder: Any, pair: Sequence[Any], places: Sequence[int]) -> Any:
    """A vector of 64 bytes of these sixteens of two."""
    return builder.shuffle_vector(*pair, emit.lanes_of(16 * place + n for place in places for n in range(16)))


def _nibbles(builder: Any, raw: Any, count: int) -> list[Any]:
    lanes = raw.type.count
    both = [builder.and_(raw, emit.ones(I8, lanes, 15)), builder.lshr(raw, emit.ones(I8, lanes, 4))]
    return both if count > 1 else [emit.joined(builder, both)]


def _bits(builder: Any, raw: Any, shift: Any, mask: int) -> Any:
    lanes = raw.type.count
    moved = builder.lshr(raw, emit.spread(builder, builder.trunc(shift, I8), lanes))
    return builder.and_(moved, emit.ones(I8, lanes, mask))


def _times_16(builder: Any, value: Any) -> Any:
    return builder.shl(value, emit.ones(I8, value.type.count, 4))


def _unsigned(builder: Any, parts: Sequence[Any]) -> list[Any]:
    """Signed bytes + 128."""
    return [builder.xor(part, emit.ones(I8, part.type.count, -128)) for part in parts]


CODES: dict[type[Any], Code] = {
    Int8Groups: Code(_int8_groups, 32, zero=128, small=False),
    Int4Groups: Code(_int4_groups, 16, zero=8, apart=True, scales=_of_int4_groups),
    Int4Shifted: Code(_int4_shifted, 16, apart=True, shifted=True, scales=_of_int4_shifted),
    Q8_0: Code(_q8_0, 34, zero=128, small=False),
    Q4_0: Code(_q4_0, 18, zero=8, scales=_of_q4_0),
    Q4_1: Code(_q4_1, 20, shifted=True, scales=_of_q4_1),
    Q4_K: Code(_q4_k, 144, 8, shifted=True),
    Q6_K: Code(_q6_k, 210, 8, zero=32, fine=True),
}
"""Of each format of blocks."""
