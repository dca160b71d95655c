"""Which keys the queries of a pass need to look at, block by block, found from the rule without a mask.

Axes: B batch, T query, S key, N blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from transpect.core.spans import Spans
from transpect.core.tags import Columns, Tags
from transpect.core.visibility import Visibility

__all__ = ["Columns", "Tile", "plan", "visible_blocks"]


@dataclass(frozen=True, eq=False)
class Tile:
    """A run of queries, and all the keys that any of them may see.

    Attributes:
        rows: of queries.
        columns: of keys, in order: a slice where the blocks adjoin, else an index.
        wholes: for each block of these keys, in order, whether every query is known to see every key of it in every row
            of the batch, so that it needs no mask. All blocks are of ``size_k`` but the one at the end of the keys.
    """

    rows: slice
    columns: Columns
    wholes: tuple[bool, ...]

    @property
    def whole(self) -> bool:
        """Whether no block needs a mask."""
        return all(self.wholes)


def plan(rule: Visibility, query: Tags, key: Tags, size_q: int, size_k: int) -> list[Tile]:
    """A tile for each run of ``size_q`` queries that may see something, in order.

    Its keys are all blocks of ``size_k`` that may be seen by these queries in any row of the batch
    (`Visibility.bounds`). What is in no tile is hidden. O((T/size_q)·(S/size_k)) memory and no mask; where both
    ``start`` are known and the rule does not read the horizon, it is made once and kept.
    """
    if query.start is None or key.start is None or rule.reads_length:
        return _tiles(rule, query, key, size_q, size_k)
    queries, keys = (query.start, query.shape[1]), (key.start, key.shape[1])
    return list(_known_tiles(rule, queries, keys, size_q, size_k, key.position.device))


@lru_cache(maxsize=128)
def _known_tiles(
    rule: Visibility, queries: tuple[int, int], keys: tuple[int, int], size_q: int, size_k: int, device: torch.device
) -> list[Tile]:
    # on the CPU, since nothing there has to be waited for; outside inference mode, since training may use it later
    with torch.inference_mode(False):
        query, key = (Tags.dense(1, length, start=start, device="cpu") for start, length in (queries, keys))
        return [
            tile if isinstance(tile.columns, slice) else Tile(tile.rows, tile.columns.to(device), tile.wholes)
            for tile in _tiles(rule, query, key, size_q, size_k)
        ]


def visible_blocks(rule: Visibility, query: Tags, key: Tags, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    """What `Visibility.bounds` says of blocks of tokens, padding excluded.

    Returns:
        some: [B, NQ, NK] bool, False only where no query of a block sees a key of the other.
        every: [B, NQ, NK] bool, True only where each query sees each key.
    """
    asking, asked = Spans.of(query, size_q), Spans.of(key, size_k)
    some, every = rule.bounds(asking, asked)
    some = some & asking.any_real[:, :, None] & asked.any_real[:, None, :]
    return some, every & asking.all_real[:, :, None] & asked.all_real[:, None, :]


def _tiles(rule: Visibility, query: Tags, key: Tags, size_q: int, size_k: int) -> list[Tile]:
    queries, keys = query.shape[1], key.shape[1]
    if not queries or not keys:
        return []
    some, every = visible_blocks(rule, query, key, size_q, size_k)
    some, every = some.any(0), every.all(0)
    block = torch.arange(some.shape[1], device=some.device)
    first = block.masked_fill(~some, some.shape[1]).amin(1)
    end = block.masked_fill(~some, -1).amax(1) + 1
    tiles = []
    for row, (begin, stop, count) in enumerate(torch.stack([first, end, some.sum(1)], 1).tolist()):
        if not count:
            continue
        columns: Columns = slice(begin * size_k, min(stop * size_k, keys))
        if count < stop - begin:
            columns = _columns(some[row], size_k, keys)
        wholes = tuple(every[row][some[row]].tolist())
        tiles.append(Tile(slice(row * size_q, min((row + 1) * size_q, queries)), columns, wholes))
    return tiles


def _columns(some: Tensor, size: int, keys: int) -> Tensor:
    blocks = some.nonzero()  # [n, 1]
    columns = (blocks * size + torch.arange(size, device=some.device)).flatten()
    return columns[columns < keys]
