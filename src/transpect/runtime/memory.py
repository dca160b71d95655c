"""Where the keys and values of a program's sequences lie: in blocks, by numbers that kernels read from a table.

Axes: B sequences, W blocks that a sequence holds at most, N blocks, P tokens of a block, S capacity.

One way serves all: a block as long as a sequence is a plain buffer, shorter ones let sequences share how they begin,
and where only the last tokens are seen the table is a ring: block j of a sequence stands in place j mod W of its row,
and what is out of sight is given to what comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transpect.base.checks import within
from transpect.cache.block_pool import BlockPool, Copy, Table
from transpect.runtime.compiling import compiled

Array = Any
MOST_ROWS = 32
"""Of one pass; more are read in several."""
OF_RING = 32
"""Tokens of a block of a ring, where nobody says: one more block than are seen is held."""


@dataclass(frozen=True)
class Layout:
    """How a program holds keys and values.

    Attributes:
        block: P; None is as long as a sequence becomes, or `OF_RING` with a memory.
        memory: how many tokens are seen before those that are read by one call; None is all.
    """

    block: int | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        within("block", self.block)
        within("memory", self.memory, 0)


class Memory:
    """The blocks of some sequences.

    Args:
        layout: of them.
        sequences: B.
        capacity: S, how long a sequence may become.
        blocks: how many there are, of a pool of the caller's own, who lends tables to sequences by `lend`; None is as
            many as the sequences may need.

    Attributes:
        block: P.
        span: how many keys a row sees at most.
        numbers: [B, W], the block in each place of a sequence's ring.
        tables: what each sequence holds.
    """

    def __init__(self, layout: Layout, sequences: int, capacity: int, blocks: int | None = None) -> None:
        seen = layout.memory
        self._lent = blocks
        self._seen = seen
        self.span = capacity if seen is None else min(capacity, seen + MOST_ROWS)
        self.block = min(capacity, layout.block or (capacity if seen is None else OF_RING))
        touched = -(-self.span // self.block) + (seen is not None)  # a span may begin within a block
        self._ring = min(touched, -(-capacity // self.block))
        self._pool = BlockPool(self.block)
        self.tables = [Table() for _ in range(sequences)]
        self.numbers: Array = None
        self.grow(sequences)

    @property
    def size(self) -> int:
        """N, with the one that is never given out."""
        return (len(self.numbers) * self._ring if self._lent is None else self._lent) + 1

    @property
    def used(self) -> int:
        """How many of them hold something."""
        return self._pool.used

    @property
    def lengths(self) -> Array:
        """Of each sequence."""
        return np.array([table.length for table in self.tables], np.int64)

    def restart(self, sequences: int) -> None:
        """Have so many sequences without tokens, at most as many as there is room for."""
        self._pool = BlockPool(self.block, len(self.numbers) * self._ring)
        self.tables = [Table() for _ in range(sequences)]
        self.numbers[:] = 0

    def grow(self, sequences: int) -> None:
        """Have room for more sequences. ``numbers`` is another array afterwards."""
        self.numbers = np.zeros((sequences, self._ring), np.int64)
        self._pool.limit = sequences * self._ring
        self._show(range(len(self.tables)))

    def begin(self, own: int, length: int) -> Array:
        """Make room for so many tokens of a sequence that has none, of those that may still be seen; the first one.
        A table that was lent has room already."""
        first = 0 if self._seen is None else max(0, length - self._seen)
        if self._lent is not None:
            return first
        dropped = first // self.block
        self.tables[own] = Table(length=dropped * self.block, dropped=dropped)
        self._pool.extend([self.tables[own]], [length - dropped * self.block])
        self._show([own])
        return first

    def lend(self, own: int, table: Table) -> None:
        """Let a sequence hold what a table of the caller's own pool does; again whenever its blocks have changed."""
        self.tables[own] = table
        self._show([own])

    def see(self, sequences: Iterable[int]) -> dict[int, int]:
        """Of each sequence that a call reads tokens of the first one that they see; those before it are let go of."""
        first = {}
        for own in sequences:
            table = self.tables[own]
            first[own] = 0 if self._seen is None else max(0, table.length - self._seen)
            self._pool.let_go(table, first[own])
        return first

    def extend(self, sequence: Sequence[int]) -> list[Copy]:
        """Make room for one more token of the sequence of each row; what is to be copied before they are written."""
        counts = Counter(sequence)
        tables = [self.tables[own] for own in counts]
        before = [table.blocks[-1:] for table in tables]
        copies = self._pool.extend(tables, list(counts.values()))
        self._show(own for own, was in zip(counts, before, strict=True) if self.tables[own].blocks[-1:] != was)
        return copies

    def forget(self, counts: Iterable[int]) -> None:
        """Forget the last tokens of each sequence, so many."""
        for table, count in zip(self.tables, counts, strict=True):
            self._pool.cut(table, table.length - count)

    def select(self, index: Sequence[int]) -> None:
        """Go on with these sequences, in this order, which share what they hold."""
        left: dict[int, Table] = dict(enumerate(self.tables))
        # the first that goes on with a table takes it over
        self.tables = [left.pop(own) if own in left else self._pool.fork(self.tables[own]) for own in index]
        for table in left.values():
            self._pool.release(table)
        self._show(range(len(index)))

    def places(self, own: int, tokens: Array) -> tuple[Array, Array]:
        """In which blocks, and where in them, tokens [n] of a sequence lie."""
        return self.numbers[own, tokens // self.block % self._ring], tokens % self.block

    def _show(self, which: Iterable[int]) -> None:
        if self._ring == 1:
            shown = [own for own in which if self.tables[own].blocks]
            self.numbers[shown, 0] = [self.tables[own].blocks[-1] for own in shown]
            return
        for own in which:
            table = self.tables[own]
            self.numbers[own, (table.dropped + np.arange(len(table.blocks))) % self._ring] = table.blocks


@compiled
def copy_blocks(held: Array, copies: Array) -> None:
    """Of keys, or values, [N, K, P, E] the first tokens of a block to another: copies [n, 3] are (source, target, how
    many)."""
    for n in range(len(copies)):
        source, target, used = copies[n]
        for k in range(held.shape[1]):
            for slot in range(used):
                for e in range(held.shape[3]):
                    held[target, k, slot, e] = held[source, k, slot, e]
