"""Kept beginnings: found by their tokens and salt alone, given up from the longest unused on, never while in use."""

from __future__ import annotations

from typing import Any

from transpect.cache.block_pool import BlockPool, Table
from transpect.serve.prefixes import Prefixes


def filled(pool: BlockPool, count: int) -> Table:
    table = Table()
    pool.extend([table], [count * pool.block])
    return table


def test_a_hit_needs_the_same_tokens_after_the_same_ones_and_the_same_salt() -> None:
    pool = BlockPool(4, 20)
    prefixes, table = Prefixes(pool), filled(pool, 2)
    first = Prefixes.key(Prefixes.root("a"), [1, 2, 3, 4])
    second = Prefixes.key(first, [5, 6, 7, 8])
    prefixes.keep(first, [1, 2, 3, 4], table.blocks[0])
    prefixes.keep(second, [5, 6, 7, 8], table.blocks[1])
    found = prefixes.find(second, [5, 6, 7, 8])
    assert found is not None and found.blocks == table.blocks[1:]
    assert prefixes.find(first, [5, 6, 7, 8]) is None
    for other in (Prefixes.key(Prefixes.root("b"), [1, 2, 3, 4]), Prefixes.key(Prefixes.root("a"), [5, 6, 7, 8])):
        assert other not in (first, second) and prefixes.find(other, [1, 2, 3, 4]) is None


def test_a_collision_is_a_miss(monkeypatch: Any) -> None:
    pool = BlockPool(4, 20)
    prefixes, table = Prefixes(pool), filled(pool, 1)
    monkeypatch.setattr(Prefixes, "key", staticmethod(lambda before, tokens: b"the same"))
    prefixes.keep(Prefixes.key(b"", [1, 2, 3, 4]), [1, 2, 3, 4], table.blocks[0])
    assert prefixes.find(Prefixes.key(b"", [4, 3, 2, 1]), [4, 3, 2, 1]) is None
    assert prefixes.find(Prefixes.key(b"", [1, 2, 3, 4]), [1, 2, 3, 4]) is not None


def test_the_longest_unused_goes_first_and_none_that_is_in_use() -> None:
    pool = BlockPool(4, 20)
    prefixes, table = Prefixes(pool), filled(pool, 4)
    keys = [bytes([n]) for n in range(4)]
    for key, number in zip(keys, table.blocks, strict=True):
        prefixes.keep(key, [0] * 4, number)
    assert prefixes.give_up(9) == 0 and prefixes.idle == 0
    pool.cut(table, 4)
    prefixes.touch(reversed(keys))
    assert prefixes.idle == 3 and prefixes.give_up(1) == 1
    assert [prefixes.find(key, [0] * 4) is None for key in keys] == [False, False, False, True]
