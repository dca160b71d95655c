"""How formats of 4 bits write the blocks of eight rows, for `abreast`: where the codes are, and what scales them.

A weight is scale·q − minimum, where q is of 4 bits; a block is 32 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.runtime.products import emit
from transpect.runtime.products.emit import FLOAT, HALF, I8, I16, I64, vector
from transpect.runtime.products.formats import Q4_0, Q4_1, Int4Groups, Int4Shifted

EIGHT = 8
"""Rows: as many as a vector of 32 bytes has lanes of 32 bits."""
Scales = list[tuple[Any, Any]]
"""Of each block vectors of eight rows: the scale, and the minimum; None where that is 8·scale."""


@dataclass(frozen=True)
class Nibbles:
    """A format.

    Attributes:
        sizes: bytes of a block in each of the format's arrays.
        codes: where the codes of a block begin, in the first array.
        scales: (builder, where each array begins, bytes from row to row, which block, how many) -> `Scales`, of one
            block or of eight.
        shifted: whether there are minima.
    """

    sizes: tuple[int, ...]
    codes: int
    scales: Callable[[Any, Sequence[Any], Sequence[Any], Any, int], Scales]
    shifted: bool = False


def rows_of(builder: Any, first: Any, step: Any) -> list[Any]:
    """Where something of each of eight rows is.

    Were LLVM told that all eight go on by the same number in a loop, it would keep a register for each, and have none
    left.
    """
    hidden = emit.opaque(builder, first)
    return [builder.add(hidden, builder.mul(step, I64(row))) for row in range(EIGHT)]


def _by_rows(builder: Any, kind: Any, first: Any, step: Any, count: int) -> list[Any]:
    """Numbers that stand beside each other in every row as ``count`` vectors of eight rows."""
    places = rows_of(builder, first, step)
    if count == 1:
        return [emit.gathered(builder, [emit.load(builder, kind, place) for place in places])]
    return emit.turned(builder, [emit.load(builder, vector(kind, count), place) for place in places])


def _floats(builder: Any, halves: Any) -> Any:
    """float16 by their bits as float32."""
    return builder.fpext(builder.bitcast(halves, vector(HALF, EIGHT)), vector(FLOAT, EIGHT))


def _of_groups(builder: Any, arrays: Sequence[Any], steps: Sequence[Any], block: Any, count: int) -> Scales:
    first = builder.add(arrays[1], builder.mul(block, I64(2)))
    return [(_floats(builder, own), None) for own in _by_rows(builder, I16, first, steps[1], count)]


def _of_shifted(builder: Any, arrays: Sequence[Any], steps: Sequence[Any], block: Any, count: int) -> Scales:
    zeros = _by_rows(builder, I8, builder.add(arrays[2], block), steps[2], count)
    scales = [scale for scale, _ in _of_groups(builder, arrays, steps, block, count)]
    pairs = zip(scales, zeros, strict=True)
    return [(scale, emit.times(builder, scale, builder.uitofp(zero, scale.type))) for scale, zero in pairs]


def _in_blocks(size: int, *, shifted: bool) -> Callable[..., Scales]:
    """Of GGUF's blocks, whose first bytes are the scale, and the opposite of the minimum if there is one."""

    def scales(builder: Any, arrays: Sequence[Any], steps: Sequence[Any], block: Any, count: int) -> Scales:
        found: Scales = []
        for n in range(count):
            first = builder.add(arrays[0], builder.mul(builder.add(block, I64(n)), I64(size)))
            places = (first, builder.add(first, I64(2))) if shifted else (first,)
            own = [_floats(builder, _by_rows(builder, I16, place, steps[0], 1)[0]) for place in places]
            found.append((own[0], builder.fneg(own[1]) if shifted else None))
        return found

    return scales


NIBBLES: dict[type[Any], Nibbles] = {
    Int4Groups: Nibbles((16, 2), 0, _of_groups),
    Int4Shifted: Nibbles((16, 2, 1), 0, _of_shifted, shifted=True),
    Q4_0: Nibbles((18,), 2, _in_blocks(18, shifted=False)),
    Q4_1: Nibbles((20,), 4, _in_blocks(20, shifted=True), shifted=True),
}
"""Of each format that this is for."""
