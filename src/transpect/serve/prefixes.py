"""Beginnings of texts that have been read, by the hash of their tokens, for requests that begin alike. No torch.

A block that is full is known by SHA-256 of what stands before it and of its tokens:

    key(b) = SHA-256(key(b − 1) + tokens of block b),    key(−1) = SHA-256(salt),

so one look-up a block finds the longest known beginning, and texts of another salt are never found, nor can be told
from unknown ones by how long they take. The tokens themselves are compared on a hit: a collision is a miss. To keep a
block is to hold it in the pool; blocks that nobody else holds are given up from the longest unused on.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from transpect.cache.block_pool import BlockPool, Table


class _Kept(NamedTuple):
    table: Table
    tokens: tuple[int, ...]


class Prefixes:
    """What is known of the blocks of a pool.

    Args:
        pool: whose blocks.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()  # from the longest unused on

    def __len__(self) -> int:
        return len(self._kept)

    @staticmethod
    def root(salt: str) -> bytes:
        """The key that stands before the first block."""
        return sha256(salt.encode()).digest()

    @staticmethod
    def key(before: bytes, tokens: Sequence[int]) -> bytes:
        """Of a block with these tokens, after the one with the key before."""
        return sha256(before + array("q", tokens).tobytes()).digest()

    def find(self, key: bytes, tokens: Sequence[int]) -> Table | None:
        """A table of one block, to be let go of by who takes it; None where there is none."""
        kept = self._kept.get(key)
        return None if kept is None or kept.tokens != tuple(tokens) else self._pool.fork(kept.table)

    def keep(self, key: bytes, tokens: Sequence[int], number: int) -> None:
        """Hold a block that has been written. One that has the key already stays."""
        if key not in self._kept:
            self._kept[key] = _Kept(self._pool.fork(Table([number], self._pool.block)), tuple(tokens))

    def touch(self, keys: Iterable[bytes]) -> None:
        """These have just been used, the last ones most: of a text its later blocks should go first."""
        for key in keys:
            if key in self._kept:
                self._kept.move_to_end(key)

    def give_up(self, count: int) -> int:
        """Let go of so many blocks that nobody else holds, or of all that there are; how many."""
        gone = 0
        for _ in range(len(self._kept)):
            if gone >= count:
                break
            key, kept = next(iter(self._kept.items()))
            if self._pool.holders(kept.table.blocks[0]) > 1:
                self._kept.move_to_end(key)
            else:
                del self._kept[key]
                self._pool.release(kept.table)
                gone += 1
        return gone

    @property
    def idle(self) -> int:
        """How many blocks nobody else holds."""
        return sum(self._pool.holders(kept.table.blocks[0]) == 1 for kept in self._kept.values())

    def clear(self) -> None:
        """Let go of all."""
        for kept in self._kept.values():
            self._pool.release(kept.table)
        self._kept.clear()
