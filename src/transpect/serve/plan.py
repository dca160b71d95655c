"""What a scheduler knows of requests, and what it plans for a pass. Plain data, no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from transpect.cache.block_pool import Copy, Table


@dataclass(eq=False, slots=True)
class Line:
    """One sequence of a request.

    Attributes:
        tokens: that are known.
        wanted: from which on the logits are asked for.
        whole: so many first tokens are read in one piece, by a pass of their own.
        many: so many first tokens are read by passes of many rows, which round otherwise than those of few.
        source: which source of the request it reads.
        deep: so many tokens are read by all layers; None is all.
        layers: how many read the others.
        table: what has been read.
        slot: its number among all sequences that run.
    """

    tokens: list[int]
    wanted: int
    whole: int = 0
    many: int = 0
    source: int = 0
    deep: int | None = None
    layers: int | None = None
    table: Table = field(default_factory=Table)
    slot: int = -1
    leader: Line | None = None  # begins alike, and is read first
    shared: int = 0  # so many tokens
    keys: list[bytes] = field(default_factory=list)  # of full blocks
    kept: int = 0  # so many of them are known to the prefix cache

    @property
    def left(self) -> int:
        """How many tokens are to be read."""
        return len(self.tokens) - self.table.length

    def read_as(self, first: int, last: int) -> list[int]:
        """The tokens of a part as a block holds them: those that were read by passes of many rows as their
        complements, for they are not what a pass of few makes of them."""
        return [~token if n < self.many else token for n, token in enumerate(self.tokens[first:last], first)]

    @property
    def settled(self) -> int:
        """How many tokens all layers read."""
        return len(self.tokens) if self.deep is None else self.deep


@dataclass(eq=False, slots=True)
class Entry:
    """A request, as far as a scheduler knows it.

    Attributes:
        number: in the order of arrival.
        lines: what it has to read; none where it reads by itself, when it has its turn.
        rows: how many lines it has at most.
        blocks: it holds at most.
        cost: its tokens, of prompts and outputs.
        salt: stands before its beginnings in the prefix cache; None keeps it out.
        cached: how many tokens of its first line the prefix cache had.
    """

    number: int
    lines: list[Line]
    rows: int
    blocks: int
    cost: int
    tenant: str = ""
    priority: int = 0
    salt: str | None = None
    cached: int = 0
    running: bool = False
    over: bool = False
    rank: tuple[float, int] = (0.0, 0)
    served: int = 0  # when it last was, as a number that grows
    begun: bool = False
    returned: bool = False  # after having been put aside

    @property
    def left(self) -> int:
        """How many tokens it has to read."""
        return sum(line.left for line in self.lines)


class Read(NamedTuple):
    """Tokens from ``start`` to before ``stop`` of a line, by its first layers or by all, by a pass of many rows or of
    few."""

    entry: Entry
    line: Line
    start: int
    stop: int
    layers: int | None = None
    many: bool = False


@dataclass(frozen=True)
class Plan:
    """One pass.

    Attributes:
        reads: those of one line in their order. The tables have room for them already.
        copies: of blocks, before anything is read.
        turn: a request without lines that may read now.
        aside: requests that were put aside; what they have been given since they last went on is void.
    """

    reads: Sequence[Read] = ()
    copies: Sequence[Copy] = ()
    turn: Entry | None = None
    aside: Sequence[Entry] = ()


@dataclass(frozen=True)
class Limits:
    """What a scheduler keeps to.

    Attributes:
        rows: lines that there are at a time.
        budget: tokens that a pass reads; a prompt that is read whole may be longer.
        overcommit: how many times the pool's blocks may be promised.
        alone: as ``budget``, where all have many tokens to read, so that nobody waits for the next one of an output.
        chunk: tokens that a pass of many rows is worth its while for: beside others it reads so many, whatever
            ``budget`` leaves.
        ahead: tokens of prompts that are read at most before those that have few to read go on, while these are less
            than twice as many as those that have a prompt.
    """

    rows: int = 64
    budget: int = 64
    overcommit: float = 2.0
    alone: int = 0
    chunk: int = 0
    ahead: int = 0


def most_blocks(prompts: Iterable[tuple[int, int]], new: int, block: int) -> int:
    """How many blocks a request holds at most.

    Args:
        prompts: for each that is different, its length and how many lines begin with it at most.
        new: tokens that each line goes on for.
        block: tokens of a block.
    """
    return sum(length // block + rows * -(-(length % block + new) // block) for length, rows in prompts)


def reads_of(entry: Entry, line: Line, count: int) -> Iterable[Read]:
    """The next so many tokens of a line, parted where passes of few rows read on, and where fewer layers do."""
    start = line.table.length
    stop = start + count
    first = min(max(start, line.many), stop)
    border = min(max(first, line.settled), stop)
    if start < first:
        yield Read(entry, line, start, first, many=True)
    if first < border:
        yield Read(entry, line, first, border)
    if border < stop:
        yield Read(entry, line, border, stop, line.layers)


def leader_of(line: Line, before: Sequence[Line]) -> tuple[Line | None, int]:
    """Of the lines before the one that begins alike for the longest, and how many tokens."""
    if line.table.length:
        return None, 0
    best, shared = None, 0
    for other in before:
        most = min(line.wanted, line.settled, other.settled)
        if line.many != other.many:
            most = min(most, line.many, other.many)
        if other.source != line.source or most <= shared:
            continue
        same = next((n for n in range(most) if line.tokens[n] != other.tokens[n]), most)
        if same > shared and same >= line.whole:
            best, shared = other, same
    return best, shared
