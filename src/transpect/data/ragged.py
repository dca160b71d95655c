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

    def taken(self, numbers: Ints) -> Ragged:
        """The rows of these numbers, in their order; a copy, also of a file that is mapped into memory."""
        lengths = self.starts[numbers + 1] - self.starts[numbers]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        flat = np.empty(starts[-1], self.flat.dtype)
        for at, number, length in zip(starts.tolist(), numbers.tolist(), lengths.tolist(), strict=False):
            begin = int(self.starts[number])
            flat[at : at + length] = self.flat[begin : begin + length]
        return Ragged(flat, starts)

    def framed(self, before: Sequence[int], after: Sequence[int]) -> Ragged:
        """Every row with the same numbers before and after it."""
        more = len(before) + len(after)
        starts = self.starts + more * np.arange(len(self.starts))
        flat = np.empty(int(starts[-1]), np.int32)
        inside = np.ones(len(flat), bool)
        for i, number in enumerate(before):
            flat[starts[:-1] + i] = number
            inside[starts[:-1] + i] = False
        for i, number in enumerate(after):
            flat[starts[1:] - len(after) + i] = number
            inside[starts[1:] - len(after) + i] = False
        flat[inside] = self.flat
        return Ragged(flat, starts)

    def part(self, row: int, start: int, length: int) -> Ints:
        """``length`` numbers of a row from its place ``start`` on, as int64."""
        at = int(self.starts[row]) + start
        return self.flat[at : at + length].astype(np.int64)
