"""Blocks of memory by number: which sequence holds which, who shares them, and when one must be copied. No torch.

A block has room for some tokens of one sequence, in every layer. Sequences that begin alike share blocks; a block that
is shared is never written to: whoever goes on in it takes a copy (copy on write). What lies in a block is not known
here. To keep a beginning for sequences that are yet to come is to keep a fork of its table, so what finds beginnings
again (e.g. by a hash of their tokens) needs nothing more from a pool.

Source: Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention", §4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transpect.base.checks import within
from transpect.base.errors import ContextLengthError

NOBODYS = 0
"""A block that is never given out: what there is none of may be looked for in it."""


@dataclass
class Table:
    """The blocks of one sequence; made and changed by a `BlockPool`.

    Attributes:
        blocks: numbers, in order.
        length: how many tokens, those that were let go of included.
        dropped: how many blocks were let go of at the front.
    """

    blocks: list[int] = field(default_factory=list)
    length: int = 0
    dropped: int = 0


class Copy(NamedTuple):
    """The first ``used`` tokens of a block are to be copied to another, before anything is written."""

    source: int
    target: int
    used: int


class BlockPool:
    """Gives out blocks by number, from 1, and counts who holds them.

    Args:
        block: how many tokens a block has room for.
        limit: how many blocks there are; None is as many as are asked for.
    """

    def __init__(self, block: int = 16, limit: int | None = None) -> None:
        within("block", block)
        within("limit", limit)
        self.block, self.limit = block, limit
        self._holders = [1]  # of each number
        self._unused: list[int] = []

    @property
    def size(self) -> int:
        """One more than the largest number that was ever given out: what memory must have room for."""
        return len(self._holders)

    @property
    def used(self) -> int:
        """How many blocks are held."""
        return self.size - 1 - len(self._unused)

    @property
    def free(self) -> int | None:
        """How many are left; None is without end."""
        return None if self.limit is None else self.limit - self.used

    def holders(self, number: int) -> int:
        """How many tables hold a block."""
        return self._holders[number]

    def needed(self, tables: Sequence[Table], counts: Sequence[int]) -> int:
        """How many blocks `extend` would take."""
        pairs = list(zip(tables, counts, strict=True))
        fresh = sum(self._blocks(table.length + count) - self._blocks(table.length) for table, count in pairs)
        writers = Counter(table.blocks[-1] for table, count in pairs if count and self._goes_on_in_shared(table))
        # the last one that holds a block need not copy it
        return fresh + sum(min(count, self._holders[number] - 1) for number, count in writers.items())

    def extend(self, tables: Sequence[Table], counts: Sequence[int]) -> list[Copy]:
        """Make room for so many more tokens of each sequence; different tables.

        Returns:
            what is to be copied, in this order.

        Raises:
            ContextLengthError: there are too few blocks; nothing has changed.
        """
        needed = self.needed(tables, counts)
        if self.free is not None and needed > self.free:
            raise ContextLengthError(
                f"a pool of {self.limit} blocks of {self.block} tokens can't hold more than these",
                value=f"{self.used} and {needed} new ones",
                remedy="Let other sequences end first, or make it larger.",
            )
        copies: list[Copy] = []
        for table, count in zip(tables, counts, strict=True):
            if count and self._goes_on_in_shared(table):
                shared = table.blocks[-1]
                table.blocks[-1] = self._take()
                self._release(shared)
                copies.append(Copy(shared, table.blocks[-1], table.length % self.block))
            table.length += count
            while len(table.blocks) + table.dropped < self._blocks(table.length):
                table.blocks.append(self._take())
        return copies

    def cut(self, table: Table, length: int) -> None:
        """Forget the tokens from ``length`` on."""
        assert length >= table.dropped * self.block, "what was let go of does not come back"
        if length < table.length:
            table.length = length
            self._keep(table, slice(0, self._blocks(length) - table.dropped))

    def let_go(self, table: Table, until: int) -> None:
        """Let go of the blocks that hold no token from ``until`` on."""
        gone = min(until, table.length) // self.block - table.dropped
        if gone > 0:
            self._keep(table, slice(gone, None))
            table.dropped += gone

    def fork(self, table: Table) -> Table:
        """A sequence that begins as this one is."""
        for number in table.blocks:
            self._holders[number] += 1
        return Table(list(table.blocks), table.length, table.dropped)

    def release(self, table: Table) -> None:
        """Let go of all of a sequence; its table is empty then."""
        self._keep(table, slice(0, 0))
        table.length = table.dropped = 0

    def _blocks(self, length: int) -> int:
        return -(-length // self.block)

    def _goes_on_in_shared(self, table: Table) -> bool:
        return table.length % self.block > 0 and self._holders[table.blocks[-1]] > 1

    def _keep(self, table: Table, kept: slice) -> None:
        start, stop, _ = kept.indices(len(table.blocks))
        for number in (*table.blocks[:start], *table.blocks[stop:]):
            self._release(number)
        table.blocks = table.blocks[start:stop]

    def _take(self) -> int:
        if self._unused:
            number = self._unused.pop()
        else:
            number = self.size
            self._holders.append(0)
        self._holders[number] = 1
        return number

    def _release(self, number: int) -> None:
        self._holders[number] -= 1
        if not self._holders[number]:
            self._unused.append(number)
