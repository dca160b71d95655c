"""Weights and activations as products read them: one tuple of arrays a format.

Axes: R rows, N out, D in, W in with room to spare.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transpect.base.errors import ConfigError
from transpect.runtime.compiling import compiled
from transpect.runtime.numeric import Number

Array = Any
MOST = 1 << 16
"""Of columns: a sum of more products of two bytes could leave 32 bits."""
BLOCK = 32
LINE = 64
"""Bytes of a line of the cache."""


class Int8Rows(NamedTuple):
    """w = scale · weight, one scale a row.

    Attributes:
        weight: int8 [N, D].
        scale: float32 [N].
        total: int32 [N, 2], of each row of ``weight`` the sum, and what `crossed` says.
    """

    weight: Array
    scale: Array
    total: Array

    @classmethod
    def of(cls, weight: Array, scale: Array) -> Int8Rows:
        """With the totals; the arrays are shared."""
        check_width(weight.shape[1])
        total = np.empty((len(weight), 2), np.int32)
        totals(weight, total)
        return cls(weight, scale.reshape(-1), total)


class Digits(NamedTuple):
    """Rows in 16 bits: x ≈ scale · (256·high + low − 32768), one scale a row.

    Attributes:
        high: uint8 [R, W], 0 after the last column.
        low: the same.
        scale: float32 [R].
    """

    high: Array
    low: Array
    scale: Array

    @classmethod
    def of(cls, rows: int, width: int) -> Digits:
        """Room for rows, which must be a multiple of eight."""
        high, low = (aligned((rows, padded(width)), np.uint8) for _ in range(2))
        return cls(high, low, np.zeros(rows, np.float32))


class Words(NamedTuple):
    """Rows in 16 bits: x ≈ scale · value, one scale a row.

    Attributes:
        value: int16 [R, W], 0 after the last column; with 128 more or less they still have 16 bits.
        scale: float32 [R].
        crossed: int32 [R], see `crossed`.
    """

    value: Array
    scale: Array
    crossed: Array

    @classmethod
    def of(cls, rows: int, width: int) -> Words:
        """Room for rows, which must be a multiple of eight."""
        value = aligned((rows, padded(width)), np.int16)
        return cls(value, np.zeros(rows, np.float32), np.zeros(rows, np.int32))


class Blocks(NamedTuple):
    """Rows in 8 bits: x ≈ scale · value, one scale for each block of 32 columns.

    Attributes:
        value: int8 [R, W]. Of each ``together`` blocks all first halves stand before all second halves; what is left
            after the last whole ``together`` blocks stands block by block.
        scale: float32 [R, W/32], 0 after the last block.
        total: the same, scale times the sum of the block.
        apart: 1 if the halves of a block are its even and its odd columns, 0 if they are the first 16 and the others.
        together: 4 or 1, by the vectors of the CPU.
    """

    value: Array
    scale: Array
    total: Array
    apart: int
    together: int

    @classmethod
    def of(cls, rows: int, width: int, *, apart: bool, together: int) -> Blocks:
        """Room for rows, which must be a multiple of eight.

        Raises:
            ConfigError: a width that is not whole blocks.
        """
        check_blocks(width, BLOCK)
        room = padded(width)
        scale, total = (aligned((rows, room // BLOCK), np.float32) for _ in range(2))
        return cls(aligned((rows, room), np.int8), scale, total, int(apart), together)


class WordBlocks(NamedTuple):
    """The numbers of `Blocks`, 16 bits wide and in their order.

    Attributes:
        value: int16 [R, W].
        scale: float32 [R, W/32].
        total: the same, scale times the sum of the block.
    """

    value: Array
    scale: Array
    total: Array

    @classmethod
    def of(cls, rows: int, width: int) -> WordBlocks:
        """Room for rows.

        Raises:
            ConfigError: a width that is not whole blocks.
        """
        check_blocks(width, BLOCK)
        room = padded(width)
        scale, total = (aligned((rows, room // BLOCK), np.float32) for _ in range(2))
        return cls(aligned((rows, room), np.int16), scale, total)


class Int8Groups(NamedTuple):
    """w = scale · weight.

    Attributes:
        weight: int8 [N, D].
        scale: float32 [N, D/32].
    """

    weight: Array
    scale: Array

    @classmethod
    def of(cls, weight: Array, scale: Array) -> Int8Groups:
        """From a scale [N, D/G] for each group of columns; what need not be repeated is shared."""
        check_blocks(weight.shape[1], BLOCK)
        return cls(weight, _by_blocks(scale, weight.shape[1]))


class Int4Groups(NamedTuple):
    """w = scale · (q − 8).

    Attributes:
        packed: uint8 [N, D/2], q of column 2b in the lower and of 2b + 1 in the upper four bits of byte b.
        scale: the bits of float16 as uint16, [N, D/32].
    """

    packed: Array
    scale: Array

    @classmethod
    def of(cls, packed: Array, scale: Array) -> Int4Groups:
        """From a scale [N, D/G] for each group of columns; what need not be repeated is shared."""
        check_blocks(2 * packed.shape[1], BLOCK)
        return cls(packed, _by_blocks(scale.view(np.uint16), 2 * packed.shape[1]))


class Int4Shifted(NamedTuple):
    """w = scale · (q − zero).

    Attributes:
        packed, scale: as in `Int4Groups`.
        zero: uint8 [N, D/32].
    """

    packed: Array
    scale: Array
    zero: Array

    @classmethod
    def of(cls, packed: Array, scale: Array, zero: Array) -> Int4Shifted:
        """From a scale and a zero [N, D/G] for each group of columns; what need not be repeated is shared."""
        return cls(*Int4Groups.of(packed, scale), _by_blocks(zero, 2 * packed.shape[1]))


class Q8_0(NamedTuple):  # noqa: N801
    """A row of GGUF's blocks as they are in the file, uint8 [N, bytes]: 34 bytes for 32 columns."""

    packed: Array


class Q4_0(NamedTuple):  # noqa: N801
    """The same: 18 bytes for 32 columns."""

    packed: Array


class Q4_1(NamedTuple):  # noqa: N801
    """The same: 20 bytes for 32 columns."""

    packed: Array


class Q4_K(NamedTuple):  # noqa: N801
    """The same: 144 bytes for 256 columns."""

    packed: Array


class Q6_K(NamedTuple):  # noqa: N801
    """The same: 210 bytes for 256 columns."""

    packed: Array


@compiled
def crossed(row: Array, width: int) -> Number:
    """Σ_j row[4j] · row[4j + 2] + row[4j + 1] · row[4j + 3], in 32 bits, whichever way it runs over; 0 stands for
    columns that there are not. See `tiles` for what it is good for."""
    total, whole = np.int32(0), width // 4
    for j in range(whole):
        total += np.int32(np.int32(row[4 * j]) * np.int32(row[4 * j + 2]))
        total += np.int32(np.int32(row[4 * j + 1]) * np.int32(row[4 * j + 3]))
    if width % 4 == 3:
        total += np.int32(row[4 * whole]) * np.int32(row[4 * whole + 2])
    return total


@compiled
def totals(weight: Array, to: Array) -> None:
    """to[N] ← of each row of weights the sum, and `crossed`."""
    for i in range(len(weight)):
        row, total = weight[i], np.int32(0)
        for d in range(len(row)):
            total += np.int32(row[d])
        to[i, 0], to[i, 1] = total, crossed(row, len(row))


def _by_blocks(numbers: Array, width: int) -> Array:
    """[N, D/G] -> [N, D/32]."""
    times = width // BLOCK // numbers.shape[1]
    return numbers if times == 1 else np.repeat(numbers, times, axis=1)


def check_blocks(width: int, size: int) -> None:
    """Refuse rows that are not whole blocks.

    Raises:
        ConfigError: names the size.
    """
    if width % size:
        raise ConfigError(
            f"rows of this format are whole blocks of {size} columns",
            value=width,
            remedy="Keep this layer in another format: int8 with a scale a row, bfloat16 or float32.",
        )


def check_width(width: int) -> None:
    """Refuse rows whose sums could be wrong.

    Raises:
        ConfigError: more than `MOST` columns.
    """
    if width > MOST:
        raise ConfigError(
            f"products of small integers are for rows of at most {MOST} columns",
            value=width,
            remedy="Keep this layer in float32 or bfloat16.",
        )


def padded(width: int) -> int:
    """W: whole vectors, and one more, as rows a multiple of 4096 bytes apart would share one set of the cache."""
    return (width + LINE - 1) // LINE * LINE + LINE


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros that begin where a line of the cache does."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + size].view(dtype).reshape(shape)
