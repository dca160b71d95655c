"""Keys and values in blocks that sequences hold by number: no memory for padding, and forks that share what is alike.

Axes: B batch, T new, S all columns, N blocks, K key-value heads, E head.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from transpect.cache.block_pool import NOBODYS, BlockPool, Copy, Table
from transpect.cache.columns import AllColumns
from transpect.core.tags import Tags


class Pages:
    """The keys and values that lie in the blocks of a pool, [N, K, block, E] a layer, for all caches that share it.

    Buffers double when the pool grows, up to its limit.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self._stores: tuple[dict[int, Tensor], dict[int, Tensor]] = ({}, {})

    @property
    def nbytes(self) -> int:
        """Memory of keys and values in bytes, blocks that nobody holds included."""
        return sum(buffer.nbytes for store in self._stores for buffer in store.values())

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy what lies in blocks to others, in every layer."""
        for store in self._stores:
            for layer in store:
                buffer = self._grown(store, layer)
                for source, target, used in copies:
                    buffer[target, :, :used] = buffer[source, :, :used]

    def move(self, source: Tensor, target: Tensor) -> None:
        """Copy what lies in cells [n] to others, in every layer. Cell c is in block ⌊c / block⌋."""
        for store in self._stores:
            for layer in store:
                buffer, block = self._grown(store, layer), self.pool.block
                buffer[target // block, :, target % block] = buffer[source // block, :, source % block]

    def write(self, which: int, layer: int, new: Tensor, where: Tensor, real: Tensor | None) -> None:
        """Put keys (``which`` 0) or values (1) [B, K, T, E] to the rows ``where`` [B, K, T] of the buffer as
        [N·K·block, E], of the tokens [B, T] that are real; None is all."""
        store = self._stores[which]
        if layer not in store:
            # zeros, since a hidden value that is no number would still make a sum none
            store[layer] = new.new_zeros(self.pool.size, new.shape[1], self.pool.block, new.shape[3])
        rows = self._grown(store, layer).view(-1, new.shape[3])
        if real is None:
            rows.index_copy_(0, where.flatten(), new.reshape(-1, new.shape[3]))
        else:
            chosen = real[:, None].expand(where.shape)
            rows.index_copy_(0, where[chosen], new[chosen])

    def read(self, which: int, layer: int, where: Tensor) -> Tensor:
        """What lies in the rows ``where`` [B, K, S], [B, K, S, E]."""
        buffer = self._stores[which][layer]
        return buffer.view(-1, buffer.shape[3]).index_select(0, where.flatten()).view(*where.shape, -1)

    def _grown(self, store: dict[int, Tensor], layer: int) -> Tensor:
        buffer, size, limit = store[layer], self.pool.size, self.pool.limit
        if len(buffer) < size:
            room = max(size, 2 * len(buffer))
            grown = buffer.new_zeros(room if limit is None else min(room, limit + 1), *buffer.shape[1:])
            grown[: len(buffer)] = buffer
            buffer = store[layer] = grown
        return buffer


class PagedCache(AllColumns):
    """Bit for bit what `DenseCache` gives, with a table of blocks for each row.

    A row's tokens lie one after another in its blocks whatever columns they are in, so padding takes no memory, a fork
    or a row that is chosen twice shares all blocks until one of them goes on, and what is forgotten at the end of a row
    is free for others. What is forgotten before it takes its place until `compact`, which moves tokens together where
    that frees a block and the pool has room to do it. In each pass keys and values are put side by side anew; kernels
    that read blocks by their tables need not.

    For inference: gradients do not flow through it.

    Args:
        pages: the blocks, which other caches may share. What it holds of them is free when it is no longer referred to.
    """

    def __init__(self, pages: Pages) -> None:
        super().__init__()
        self._pages, self._pool = pages, pages.pool
        self._tables: list[Table] = []
        self._index = torch.empty(0, 0, dtype=torch.int64)  # [B, S], which token of its row a column holds; −1 is none
        self._cells = self._index  # [B, S], where it lies
        self._new: Tensor | None = None  # [B, T], which of the new columns are real; None is all
        self._rows: dict[int, Tensor] = {}
        weakref.finalize(self, _release, self._pool, self._tables)

    @property
    def tables(self) -> Sequence[Table]:
        """The blocks of each row."""
        return self._tables

    @property
    def nbytes(self) -> int:
        """Memory of all blocks in bytes, those of other caches included."""
        return self._pages.nbytes

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add one layer's new keys and values [B, K, T, E]; give all of them [B, K, S, E]."""
        where = self._where(key.shape[1])
        new = where[:, :, where.shape[2] - key.shape[2] :]
        for which, numbers in enumerate((key, value)):
            self._pages.write(which, layer, numbers, new, self._new)
        return self._pages.read(0, layer, where), self._pages.read(1, layer, where)

    def fork(self) -> PagedCache:
        """An independent copy, which shares what is written."""
        twin = PagedCache(self._pages)
        twin._index = self._index
        twin._tables += [self._pool.fork(table) for table in self._tables]
        return self._copy_to(twin)

    def _make_room(self, tags: Tags) -> None:
        real = tags.position >= 0
        counts = real.sum(1)
        before = [table.length for table in self._tables]
        tables = self._tables or [Table() for _ in counts]
        copies = self._pool.extend(tables, counts.tolist())
        if not self._tables:
            self._tables += tables
            self._index, before = real.new_empty(len(tables), 0, dtype=torch.int64), [0] * len(tables)
        self._pages.copy(copies)
        new = torch.tensor(before, device=real.device)[:, None] + real.long().cumsum(1) - 1
        self._index = torch.cat([self._index, new.masked_fill(~real, -1)], 1)
        self._new = None if bool(real.all()) else real
        self._cells, self._rows = self._at(self._index), {}

    def _cut(self, length: int) -> None:
        self._index = self._index[:, :length]
        if length:
            self._free_ends()
        else:
            self._replace([])

    def _blank(self, gone: Tensor) -> None:
        self._index = self._index.masked_fill(gone, -1)
        self._free_ends()

    def _arrange(self, order: Tensor) -> None:
        self._index = self._index.gather(1, order)
        for row, count in enumerate((self._index >= 0).sum(1).tolist()):
            self._pack(row, count)

    def _choose(self, rows: Tensor) -> None:
        if self._tables:
            self._index = self._index[rows]
            self._replace([self._pool.fork(self._tables[row]) for row in rows.tolist()])

    def _pack(self, row: int, count: int) -> None:
        """Move the tokens of a row together, if that frees a block."""
        before, free = self._tables[row], self._pool.free
        needed = -(-count // self._pool.block)
        if needed == len(before.blocks) or (free is not None and needed > free):
            return
        own = self._index[row : row + 1]
        kept = own >= 0
        source = self._at(own, [before])[kept]
        after = Table()
        self._pool.extend([after], [count])
        self._index = self._index.clone()
        self._index[row, kept[0]] = torch.arange(count, device=own.device)
        self._pages.move(source, self._at(self._index[row : row + 1], [after])[kept])
        self._tables[row] = after
        self._pool.release(before)

    def _free_ends(self) -> None:
        for table, last in zip(self._tables, self._index.amax(1).tolist(), strict=True):
            self._pool.cut(table, last + 1)

    def _replace(self, tables: Sequence[Table]) -> None:
        """In place, since what frees the blocks at the end knows this list."""
        for table in self._tables:
            self._pool.release(table)
        self._tables[:] = tables

    def _at(self, index: Tensor, tables: Sequence[Table] | None = None) -> Tensor:
        """The cells of tokens [B, S] of each row; padding may be sought in any of its own, or in nobody's."""
        of_rows = [[*table.blocks, NOBODYS] for table in (self._tables if tables is None else tables)]
        widest = max(map(len, of_rows))
        numbers = torch.tensor([own + [NOBODYS] * (widest - len(own)) for own in of_rows], device=index.device)
        block, token = self._pool.block, index.clamp(min=0)
        return numbers.gather(1, token // block) * block + token % block

    def _where(self, n_heads: int) -> Tensor:
        """Where columns lie in a buffer as [N·K·block, E]: [B, K, S]; layers with as many heads share it."""
        if n_heads not in self._rows:
            block, head = self._pool.block, torch.arange(n_heads, device=self._cells.device)[:, None]
            number, slot = self._cells[:, None] // block, self._cells[:, None] % block
            self._rows[n_heads] = (number * n_heads + head) * block + slot
        return self._rows[n_heads]


def _release(pool: BlockPool, tables: list[Table]) -> None:
    for table in tables:
        pool.release(table)
