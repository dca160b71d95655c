"""Fill rows with pieces by best fit decreasing (Johnson 1973), within windows of the pieces."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

import numpy as np

from transpect.base.errors import ConfigError
from transpect.data.draws import shuffled
from transpect.data.packing import Plan, packed
from transpect.data.ragged import Ints

Fit = Literal["first", "best"]
"""How rows are filled: ``first`` fit among a few open rows, or ``best`` fit."""

WINDOW: Final = 4096
"""How many pieces are sorted at a time. More fill rows better, and bring pieces together that stood far apart."""


def filled(pieces: Ints, capacity: int, overhead: int, fit: Fit, generator: np.random.Generator | None) -> Plan:
    """Pieces side by side in rows, each piece whole.

    Args:
        pieces: [pieces, 3], in the order in which they are placed.
        capacity: of a row.
        overhead: what each piece takes besides its length.
        fit: by which rule.
        generator: of a random order of rows, where the rule brings them in one of its own; None leaves them in the
            order of their earliest pieces.
    """
    if fit == "first":
        return packed(pieces, capacity, overhead)
    plan = best_fit(pieces, capacity, overhead)
    return plan if generator is None else plan.reordered(shuffled(len(plan), generator))


def check_fit(fit: Fit, packs: bool) -> None:
    """Refuse a rule where no row is filled by it.

    Raises:
        ConfigError: it would mean nothing.
    """
    if fit == "best" and not packs:
        raise ConfigError(
            "fit says how separate documents are packed, and these are not",
            remedy="Leave `fit` out, or set pack: true.",
        )


def best_fit(pieces: Ints, capacity: int, overhead: int = 0, window: int = WINDOW) -> Plan:
    """The pieces of each window from the longest to the shortest, each into the row where it leaves the least room
    (of equals the oldest), or else into a new one. Rows stay open from window to window.

    Best fit decreasing needs at most 11/9 of the fewest rows and 4 more; in rare orders first fit is luckier. Then its
    rows are taken, so there are never more than by `packed`.

    Rows are in the order of their earliest pieces, and the pieces of a row in that of ``pieces``.
    """
    rows = _Rows(capacity)
    row_of = np.empty(len(pieces), np.int64)
    needs = pieces[:, 2] + overhead
    for start in range(0, len(pieces), window):
        order = start + np.argsort(-needs[start : start + window], kind="stable")
        for piece, need in zip(order.tolist(), needs[order].tolist(), strict=True):
            row_of[piece] = rows.place(need)
    simple = packed(pieces, capacity, overhead)
    if len(simple) < rows.count:
        return simple
    by_row = np.argsort(row_of, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows.count))])
    return Plan(pieces[by_row], starts).reordered(np.argsort(by_row[starts[:-1]], kind="stable"))


class _Rows:
    """Open rows by the room that is left in them."""

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self._capacity = capacity
        self._rows: list[deque[int]] = [deque() for _ in range(capacity + 1)]
        self._rooms = 0  # bit r is set where a row has room r

    def place(self, need: int) -> int:
        """The row with the least room that is enough."""
        enough = self._rooms >> need << need
        if enough:
            room = (enough & -enough).bit_length() - 1
            row = self._rows[room].popleft()
            if not self._rows[room]:
                self._rooms &= ~(1 << room)
        else:
            room, row = self._capacity, self.count
            self.count += 1
        if left := room - need:
            self._rows[left].append(row)
            self._rooms |= 1 << left
        return row
