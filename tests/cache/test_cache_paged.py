"""Blocks for rows: bit for bit the dense cache, and what is alike or padding takes no memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transpect.base.errors import ContextLengthError
from transpect.cache import BlockPool, DenseCache, PagedCache, Pages


def padded(draw: torch.Generator, rows: int, width: int) -> torch.Tensor:
    """Padding anywhere."""
    return torch.rand(rows, width, generator=draw) < 0.7


def number(draw: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=draw))


def same_tags(one: Any, other: Any) -> bool:
    return one.tags is other.tags is None or all(
        torch.equal(getattr(one.tags, name), getattr(other.tags, name))
        for name in ("position", "segment", "prefix", "is_global", "horizon")
    )


@pytest.mark.parametrize("block", [1, 4, 16])
@pytest.mark.parametrize("positions", ["rope", "t5"])
@torch.no_grad()
def test_whatever_is_done_it_is_the_dense_cache(positions: str, block: int, tools: Any) -> None:
    """In float32, to the last bit; several caches over the same blocks, each with a dense twin."""
    model, draw = tools.build(positions).float(), torch.Generator().manual_seed(block)
    pages = Pages(BlockPool(block))
    pairs = [(PagedCache(pages), DenseCache())]
    for turn in range(60):
        paged, dense = pairs[number(draw, 0, len(pairs) - 1)]
        rows = 3 if dense.tags is None else dense.tags.shape[0]
        act = number(draw, 0, 9)
        if act < 4 or dense.tags is None:
            width = number(draw, 1, 5)
            ids, real = tools.tokens(rows, width, seed=turn), padded(draw, rows, width)
            before = torch.as_tensor(dense.next_position).expand(rows, 1)
            position = (before + real.long().cumsum(1) - 1).masked_fill(~real, -1)
            out = [model(ids, tags=tools.of(position), cache=cache) for cache in (paged, dense)]
            assert torch.equal(out[0], out[1])
        elif act == 4:
            length = number(draw, 0, dense.length) if number(draw, 0, 3) else 0
            for cache in (paged, dense):
                cache.crop(length)
        elif act == 5:
            keep = torch.rand(rows, dense.length, generator=draw) < 0.8
            for cache in (paged, dense):
                cache.forget(keep)
        elif act == 6:
            chosen = torch.randint(0, rows, (number(draw, 1, 4),), generator=draw)
            for cache in (paged, dense):
                cache.select(chosen)
        elif act == 7 and len(pairs) < 4:
            pairs.append((paged.fork(), dense.fork()))
        elif act == 8 and len(pairs) > 1:
            pairs.pop()
        else:
            for cache in (paged, dense):
                cache.compact()
        for paged, dense in pairs:
            assert (paged.length, same_tags(paged, dense)) == (dense.length, True)
    held = {block for paged, _ in pairs for table in paged.tables for block in table.blocks}
    assert pages.pool.used == len(held)
    del paged, dense, cache
    pairs.clear()
    assert pages.pool.used == 0


@torch.no_grad()
def test_what_is_alike_or_padding_takes_no_memory(tools: Any) -> None:
    model, pool = tools.build(), BlockPool(4)
    cache = PagedCache(Pages(pool))
    model(tools.tokens(3, 12), tags=tools.left([12, 1, 5], 12), cache=cache)
    assert pool.used == 3 + 1 + 2
    cache.select(torch.tensor([0, 0, 0, 0]))
    assert pool.used == 3
    twins = [cache.fork() for _ in range(3)]
    assert pool.used == 3
    model(tools.tokens(4, 1), cache=cache)
    assert pool.used == 3 + 4
    del twins
    cache.crop(4)
    assert pool.used == 1
    model(tools.tokens(4, 2), cache=cache)
    assert pool.used == 1 + 4
    cache.crop(5)  # of a block that nobody shares; one that is goes on being shared
    cache.select(torch.tensor([1]))
    assert pool.used == 2
    cache.crop(0)
    assert pool.used == 0


@torch.no_grad()
def test_compact_moves_tokens_together_where_that_frees_a_block(tools: Any) -> None:
    model, pool = tools.build(layers=1), BlockPool(4, 6)
    cache, dense = PagedCache(Pages(pool)), DenseCache()
    keep = torch.ones(1, 20, dtype=torch.bool)
    keep[:, 1:18:2] = False
    for each in (cache, dense):
        model(tools.tokens(1, 20), cache=each)
        each.forget(keep)
        each.compact()
    assert pool.used == 5  # 11 tokens need 3, and one is left
    cache.forget(torch.tensor([[True] * 3 + [False] * 4 + [True] * 4]))
    dense.forget(torch.tensor([[True] * 3 + [False] * 4 + [True] * 4]))
    pool.limit = 7
    cache.compact()
    dense.compact()
    assert (pool.used, cache.tables[0].length) == (2, 7)
    assert torch.equal(model(tools.tokens(1, 2), cache=cache), model(tools.tokens(1, 2), cache=dense))


@torch.no_grad()
def test_what_has_no_room_is_refused_and_nothing_written(tools: Any) -> None:
    model, ids = tools.build(), tools.tokens(2, 9)
    pages = Pages(BlockPool(4, 5))
    cache, dense = PagedCache(pages), DenseCache()
    with pytest.raises(ContextLengthError, match=r"pool of 5 blocks of 4 tokens.*0 and 6 new ones.*larger"):
        model(ids, cache=cache)
    assert (cache.length, pages.pool.used) == (0, 0)
    for each in (cache, dense):
        model(ids[:, :8], cache=each)
    with pytest.raises(ContextLengthError, match="4 and 2 new ones"):
        model(ids[:, :1], cache=cache)
    assert (cache.length, pages.pool.used) == (8, 4)
    for each in (cache, dense):
        each.select(torch.tensor([1]))
    assert torch.equal(model(ids[:1, :4], cache=cache), model(ids[:1, :4], cache=dense))
    assert pages.nbytes == 2 * 2 * 5 * 2 * 4 * 4 * 8  # keys and values, layers, N, K, block, E, bytes


@torch.no_grad()
def test_a_row_that_is_no_number_spoils_no_other(tools: Any) -> None:
    """Nor does one whose blocks another gets."""
    model, pages = tools.build(), Pages(BlockPool(2))
    ids, tags = tools.tokens(2, 6), tools.left([6, 3], 6)
    expected = model(ids, tags=tags)[1, -1]
    weight = model.token.weight
    broken, whole = PagedCache(pages), weight.clone()
    weight[ids[0, 0]] = torch.nan
    model(ids[:1], cache=broken)
    del broken
    weight.copy_(whole)
    assert torch.equal(model(ids, tags=tags, cache=PagedCache(pages))[1, -1], expected)
