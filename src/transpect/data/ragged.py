"""Many short rows of numbers in one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths, end to end: row i is ``flat[starts[i] : starts[i + 1]]``.

    Attributes:
        flat: all numbers, int32 or smaller.
        starts: [rows + 1] int64.
    """

    flat: NDArray[Any]
    starts: Ints

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: type[np.integer[Any]] = np.int32) -> Ragged:
        """Take rows up."""
        flat = np.fromiter(chain.from_iterable(rows), dtype, count=sum(map(len, rows)))
        return cls(flat, np.cumsum([0, *map(len, rows)], dtype=np.int64))

    @classmethod
    def join(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts in order."""
        lengths = np.concatenate([np.zeros(1, np.int64), *(part.lengths for part in parts)])
        return cls(np.concatenate([part.flat for part in parts]), np.cumsum(lengths))

    @property
    def lengths(self) -> Ints:
        """[rows] int64."""
        return np.diff(self.starts)

    def part(self, row: int, start: int, length: int) -> Ints:
        """``length`` numbers of a row from its place ``start`` on, as int64."""
        at = int(self.starts[row]) + start
        return self.flat[at : at + length].astype(np.int64)
