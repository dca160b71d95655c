"""Blocks by number: whatever is done, each sequence reads back what it wrote, and no block is lost or held twice."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from transpect.base.errors import ConfigError, ContextLengthError
from transpect.cache import BlockPool, Table
from transpect.cache.block_pool import NOBODYS


class Memory:
    """A pool with something in its blocks, and of each sequence what it should read."""

    def __init__(self, block: int, limit: int | None) -> None:
        self.pool = BlockPool(block, limit)
        self.cells: dict[tuple[int, int], int] = {}
        self.tables: list[Table] = []
        self.expected: list[list[int]] = []
        self.written = 0

    def begin(self) -> None:
        self.tables.append(Table())
        self.expected.append([])

    def write(self, which: list[int], counts: list[int]) -> None:
        tables = [self.tables[own] for own in which]
        needed, used = self.pool.needed(tables, counts), self.pool.used
        copies = self.pool.extend(tables, counts)
        assert self.pool.used == used + needed
        for source, target, n in copies:
            for slot in range(n):
                self.cells[target, slot] = self.cells[source, slot]
        for own, count in zip(which, counts, strict=True):
            for _ in range(count):
                place, self.written = len(self.expected[own]), self.written + 1
                self.cells[self.cell(self.tables[own], place)] = self.written
                self.expected[own].append(self.written)

    def cell(self, table: Table, token: int) -> tuple[int, int]:
        return table.blocks[token // self.pool.block - table.dropped], token % self.pool.block

    def check(self) -> None:
        pool = self.pool
        held = Counter(number for table in self.tables for number in table.blocks)
        assert all(pool.holders(number) == held[number] for number in range(1, pool.size))
        assert pool.used == len(held)
        assert NOBODYS not in held
        for table, expected in zip(self.tables, self.expected, strict=True):
            assert table.length == len(expected)
            first = table.dropped * pool.block
            assert [self.cells[self.cell(table, token)] for token in range(first, table.length)] == expected[first:]


@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize("block", [1, 3, 16])
def test_each_sequence_reads_what_it_wrote(block: int, limit: int | None) -> None:
    draw, memory = random.Random(block), Memory(block, limit)
    refused = 0
    for _ in range(300):
        n = len(memory.tables)
        act = draw.choice(["write"] * 4 + ["fork", "cut", "let go", "end", "begin"]) if n else "begin"
        one = draw.randrange(n) if n else 0
        if act == "begin":
            memory.begin()
        elif act == "write":
            which = draw.sample(range(n), draw.randint(1, n))
            counts = [draw.choice([0, 1, 1, 2, 5]) for _ in which]
            before = [(list(table.blocks), table.length) for table in memory.tables]
            free = memory.pool.free
            if free is None or memory.pool.needed([memory.tables[own] for own in which], counts) <= free:
                memory.write(which, counts)
            else:
                with pytest.raises(ContextLengthError, match=f"pool of {limit} blocks"):
                    memory.write(which, counts)
                assert before == [(table.blocks, table.length) for table in memory.tables]
                refused += 1
        elif act == "fork":
            memory.tables.append(memory.pool.fork(memory.tables[one]))
            memory.expected.append(list(memory.expected[one]))
        elif act == "cut":
            table = memory.tables[one]
            length = draw.randint(min(table.dropped * block, table.length), table.length)
            memory.pool.cut(table, length)
            memory.expected[one] = memory.expected[one][:length]
        elif act == "let go":
            memory.pool.let_go(memory.tables[one], draw.randint(0, memory.tables[one].length))
        else:
            memory.pool.release(memory.tables.pop(one))
            memory.expected.pop(one)
        memory.check()
    assert (refused > 0) == (limit is not None)
    for table in memory.tables:
        memory.pool.release(table)
    assert memory.pool.used == 0
    assert memory.pool.free == limit


def test_the_last_holder_of_a_block_copies_nothing() -> None:
    pool = BlockPool(4)
    first = Table()
    pool.extend([first], [6])
    forks = [pool.fork(first) for _ in range(2)]
    assert pool.needed([first, *forks], [1, 1, 1]) == 2
    copies = pool.extend([first, *forks], [1, 1, 1])
    assert [(copy.source, copy.used) for copy in copies] == [(forks[1].blocks[1], 2)] * 2
    assert pool.holders(first.blocks[0]) == 3
    assert len({first.blocks[1], forks[0].blocks[1], forks[1].blocks[1]}) == 3


def test_a_window_takes_no_more_blocks_than_it_touches() -> None:
    pool, table = BlockPool(4), Table()
    for _ in range(100):
        pool.extend([table], [1])
        pool.let_go(table, table.length - 6)
        assert pool.used <= 3
    assert pool.size == 4
    assert table.length == 100


def test_sizes_are_checked() -> None:
    for options in ({"block": 0}, {"limit": 0}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            BlockPool(**options)
