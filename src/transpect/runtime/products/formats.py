"""Weights and activations as products read them: one tuple of arrays a format.

Axes: R rows, N out, D in, W in with room to spare.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from transpect.base.errors import ConfigError

Array = Any
MOST = 1 << 16
"""Of columns: a sum of more products of two bytes could leave 32 bits."""
LINE = 64
"""Bytes of a line of the cache."""


class Int8Rows(NamedTuple):
    """w = scale · weight, one scale a row.

    Attributes:
        weight: int8 [N, D].
        scale: float32 [N].
        total: int32 [N], the sum of each row of ``weight``.
    """

    weight: Array
    scale: Array
    total: Array

    @classmethod
    def of(cls, weight: Array, scale: Array) -> Int8Rows:
        """With the totals; the arrays are shared."""
        check_width(weight.shape[1])
        return cls(weight, scale.reshape(-1), weight.sum(1, dtype=np.int32))


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
