"""Which piece of which document goes into which row.

A *piece* is a run of one document's places that fits a row. A document of n places and rows of L give ⌈n / L⌉ pieces:
full ones, then the rest. So each place is in exactly one row, and is read once an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from transpect.data.ragged import Ints

OPEN_ROWS: Final = 64
"""How many rows are open at once. More waste less and pack slower."""

Piece = tuple[int, int, int]
"""(document, start, length)"""


@dataclass(frozen=True, eq=False)
class Plan:
    """The rows of one pass.

    Attributes:
        pieces: [pieces, 3] int64, each (document, start, length), row after row.
        rows: [rows + 1] int64; row i holds ``pieces[rows[i] : rows[i + 1]]``.
    """

    pieces: Ints
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows) - 1

    def __getitem__(self, row: int) -> list[Piece]:
        """The pieces of a row, in order."""
        return [(d, s, n) for d, s, n in self.pieces[self.rows[row] : self.rows[row + 1]].tolist()]

    def reordered(self, order: Ints) -> Plan:
        """The same rows in another order."""
        counts = np.diff(self.rows)[order]
        rows = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(rows[-1]) - np.repeat(rows[:-1], counts)
        return Plan(self.pieces[np.repeat(self.rows[:-1][order], counts) + within], rows)


def cut(lengths: Ints, capacity: int) -> Ints:
    """Documents of some lengths as pieces of at most ``capacity``: [pieces, 3], in order. Empty documents have none."""
    counts = -(-lengths // capacity)
    document = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = number * capacity
    return np.stack([document, start, np.minimum(lengths[document] - start, capacity)], 1)


def alone(pieces: Ints) -> Plan:
    """Each piece in a row of its own."""
    return Plan(pieces, np.arange(len(pieces) + 1))


def packed(pieces: Ints, capacity: int, overhead: int = 0) -> Plan:
    """Pieces side by side, each whole, by first fit: into the oldest open row that has room, else into a new row.

    Once `OPEN_ROWS` are open, the fullest one (of equals the oldest) is closed before another is opened. Rows come in
    the order in which they were opened.

    Args:
        pieces: in the order in which they are placed.
        capacity: of a row.
        overhead: what each piece takes besides its length.
    """
    room: dict[int, int] = {}  # open row -> what is left in it, the oldest first
    row_of = np.empty(len(pieces), np.int64)
    opened = 0
    for i, need in enumerate((pieces[:, 2] + overhead).tolist()):
        row = next((row for row, left in room.items() if left >= need), None)
        if row is None:
            if len(room) == OPEN_ROWS:
                del room[min(room, key=room.__getitem__)]
            row, opened = opened, opened + 1
            room[row] = capacity
        row_of[i] = row
        room[row] -= need
        if not room[row]:
            del room[row]
    by_row = np.argsort(row_of, kind="stable")
    return Plan(pieces[by_row], np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=opened))]))


def in_lanes(plan: Plan, count: int, capacity: int) -> Plan:
    """The places of a plan, end to end, in lanes that are read side by side, segment by segment.

    The whole is cut into ``count`` lanes of equal length (the first ones may have a place more), and each lane every
    ``capacity`` places. Row s · count + b is segment s of lane b, so it goes on where row (s − 1) · count + b ended.
    Where a lane is over before the others, its rows are empty.
    """
    lengths = plan.pieces[:, 2]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    size = total // count + (np.arange(count) < total % count)
    steps = np.arange(-(-int(size[0]) // capacity) + 1) * capacity
    marks = (np.cumsum(size) - size)[:, None] + np.minimum(steps, size[:, None])  # [lanes, segments + 1]
    borders = np.union1d(np.concatenate([[0], ends]), marks)
    begin, length = borders[:-1], np.diff(borders)
    which = np.searchsorted(ends, begin, side="right")
    start = plan.pieces[which, 1] + begin - (ends[which] - lengths[which])
    rows = np.searchsorted(begin, np.append(marks[:, :-1], total))
    by_lane = Plan(np.stack([plan.pieces[which, 0], start, length], 1), rows)
    return by_lane.reordered(np.arange(len(by_lane)).reshape(count, -1).T.ravel())


def joined(lengths: Ints, order: Ints, capacity: int) -> Plan:
    """Documents end to end in ``order``, the whole cut every ``capacity`` places; only the last row may be short."""
    ends = np.cumsum(lengths[order])
    total = int(ends[-1]) if len(ends) else 0
    borders = np.union1d(np.concatenate([[0], ends]), np.arange(0, total + capacity, capacity).clip(max=total))
    begin, length = borders[:-1], np.diff(borders)
    which = np.searchsorted(ends, begin, side="right")
    start = begin - (ends[which] - lengths[order][which])
    rows = np.searchsorted(begin, np.arange(0, total + capacity, capacity).clip(max=total))
    return Plan(np.stack([order[which], start, length], 1), rows[: -(-total // capacity) + 1])
