"""The dense cache: after crop, select, fork and compact, going on equals computing everything anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from transpect.cache import DenseCache, SinksCache, StaticCache
from transpect.cache.columns import unpadded
from transpect.core import AttentionConfig, Cache, Causal, Full, ModelConfig, StackConfig, Tags, Transformer, Window
from transpect.core.positions import Alibi, Learned, Position, Rope, T5Buckets, TransformerXL
from transpect.core.positions.base import unmoved

POSITIONS: dict[str, Position] = {
    "learned": Learned(),
    "rope": Rope(),
    "alibi": Alibi(),
    "t5": T5Buckets(buckets=8, max_distance=6),
    "transformer-xl": TransformerXL(),
}
TOLERANCE = 1e-10  # float64
HORIZON = 400


def build(positions: str = "rope", *, window: int | None = None, encodes: bool = False) -> Transformer:
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=4, n_kv_heads=2),
        positions=POSITIONS[positions],
        visibility=Causal() if window is None else Window(window),
    )
    config = ModelConfig(vocab_size=19, d_model=16, context_length=HORIZON, decoder=stack)
    if encodes:
        crossing = replace(stack, steps=(("self",), ("cross",), ("ffn",)))
        config = replace(config, encoder=replace(stack, visibility=Full()), decoder=crossing)
    model = Transformer(config).eval().double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return model


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 19, (rows, length), generator=torch.Generator().manual_seed(seed))


def ragged(lengths: list[int], width: int, *, left: bool = True) -> Tags:
    column, length = torch.arange(width), torch.tensor(lengths)[:, None]
    return Tags.padded(column >= width - length if left else column < length)


def anew(model: Transformer, rows: list[Tensor]) -> Tensor:
    """The last logits of each row, computed alone and without a cache: [B, V]."""
    return torch.stack([model(row[None])[0, -1] for row in rows])


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and float((a - b).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_crop_forgets(positions: str) -> None:
    """Also what was written over: a draft that is taken back, any number of times."""
    model, ids = build(positions), tokens(3, 12)
    cache = DenseCache()
    model(ids, cache=cache)
    for length, more in ((7, 5), (7, 1), (3, 90), (2, 4), (0, 6)):
        cache.crop(length)
        assert cache.length == length
        other = tokens(3, more, seed=more)
        out = model(other, cache=cache)
        ids = torch.cat([ids[:, :length], other], 1)
        assert close(out[:, -1], anew(model, list(ids)))
    cache.crop(1000)
    assert cache.length == 6


@torch.no_grad()
def test_an_emptied_cache_takes_another_batch() -> None:
    model, cache = build(), DenseCache()
    model(tokens(3, 5), cache=cache)
    cache.crop(0)
    assert close(model(tokens(2, 4), cache=cache)[:, -1], anew(model, list(tokens(2, 4))))


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], [1], [1, 1, 0, 2, 1]], ids=str)
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_select_keeps_repeats_and_reorders(positions: str, rows: list[int]) -> None:
    model, ids, cache = build(positions), tokens(3, 6), DenseCache()
    model(ids, cache=cache)
    cache.select(torch.tensor(rows, dtype=torch.long))
    last = tokens(len(rows), 1, seed=3)
    out = model(last, cache=cache)
    assert close(out[:, -1], anew(model, list(torch.cat([ids[rows], last], 1))))


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_forks_go_their_own_ways(positions: str) -> None:
    """Turn by turn, so that what one writes would be read by another if they shared anything."""
    model, ids, cache = build(positions), tokens(2, 5), DenseCache()
    model(ids, cache=cache)
    caches, rows = [cache, cache.fork(), cache.fork()], [ids, ids, ids]
    for step in range(4):
        for i in range(3):
            more = tokens(2, step + 1, seed=10 * i + step)
            out = model(more, cache=caches[i])
            rows[i] = torch.cat([rows[i], more], 1)
            assert close(out[:, -1], anew(model, list(rows[i])))
    caches[1].crop(3)
    caches[2].select(torch.tensor([1]))
    assert [cache.length for cache in caches] == [15, 3, 15]
    assert close(model(more, cache=caches[0])[:, -1], anew(model, list(torch.cat([rows[0], more], 1))))


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_ragged_rows_are_selected_and_go_on(positions: str, left: bool) -> None:
    model, lengths, width = build(positions), [2, 7, 4, 6], 7
    ids, tags, cache = tokens(4, width), ragged([2, 7, 4, 6], 7, left=left), DenseCache()
    model(ids, tags=tags, cache=cache)
    rows = [ids[i, tags.position[i] >= 0] for i in range(4)]
    assert [len(row) for row in rows] == lengths
    for kept in ([3, 0, 2], [1, 2], [1]):  # the longest leaves first, so that padding is left over
        cache.select(torch.tensor(kept))
        cache.compact()
        rows = [rows[i] for i in kept]
        assert cache.length == max(map(len, rows)) if left else cache.length >= max(map(len, rows))
        assert torch.as_tensor(cache.next_position).flatten().tolist() in ([len(r) for r in rows], [len(rows[0])])
        for step in range(3):
            last = tokens(len(rows), 1, seed=step)
            out = model(last, cache=cache)
            rows = [torch.cat([row, new]) for row, new in zip(rows, last, strict=True)]
            assert close(out[:, -1], anew(model, rows))


@torch.no_grad()
def test_compact_leaves_what_is_needed_and_sees_plain_rows_again() -> None:
    model, cache = build(), DenseCache()
    cache.compact()
    model(tokens(2, 9), tags=ragged([3, 9], 9), cache=cache)
    cache.compact()
    assert cache.length == 9
    cache.select(torch.tensor([0, 0]))
    cache.compact()
    assert (cache.length, cache.next_position) == (3, 3)  # one number: the fast path of rows without padding


@pytest.mark.parametrize(
    ("tags", "start"),
    [
        (Tags.of(torch.tensor([[4, 5, 6], [4, 5, 6]])), 4),
        (Tags.of(torch.tensor([[0, 1, 2], [0, 1, 3]])), None),
        (Tags.of(torch.tensor([[-1, 0, 1]])), None),
        (Tags.of(torch.tensor([[0, 1]]), prefix=torch.tensor([[True, False]])), None),
        (Tags.of(torch.tensor([[0, 1]]), segment=torch.tensor([[0, 1]])), None),
        (Tags.dense(2, 3, start=7), 7),
        (Tags.of(torch.empty(1, 0, dtype=torch.long), horizon=torch.zeros(1)), None),
    ],
)
def test_plain_rows_are_recognised(tags: Tags, start: int | None) -> None:
    assert unpadded(tags).start == start


@pytest.mark.parametrize("window", [None, 5])
@torch.no_grad()
def test_growth_over_the_borders_of_buffers(window: int | None) -> None:
    """Token by token and in blocks, far beyond what the first pass made room for."""
    model, ids = build(window=window), tokens(2, 150)
    full = model(ids)
    for sizes in ([1] * 150, [3, 61, 1, 64, 2, 1, 18], [150]):
        cache, done = DenseCache(), 0
        for size in sizes:
            out = model(ids[:, done : done + size], cache=cache)
            done += size
            assert close(out, full[:, done - size : done])
        assert cache.length == done == 150


@torch.no_grad()
def test_growth_keeps_selected_rows() -> None:
    model, ids, cache = build(), tokens(3, 200), DenseCache()
    model(ids[:, :60], cache=cache)
    cache.select(torch.tensor([2, 0]))
    out = model(ids[[2, 0], 60:], cache=cache)
    assert close(out[:, -1], anew(model, list(ids[[2, 0]])))


@pytest.mark.parametrize(
    "make",
    [DenseCache, lambda: StaticCache(30), lambda: SinksCache(2, 30, [unmoved] * 2)],
    ids=["dense", "static", "sinks"],
)
@torch.no_grad()
def test_cross_memory_is_computed_once_and_follows_its_rows(make: Callable[[], Cache]) -> None:
    model, ids, source_ids = build(encodes=True), tokens(3, 4), tokens(3, 6, seed=8)
    source_tags = ragged([6, 2, 4], 6)
    source, cache, computed = model.encode(source_ids, tags=source_tags), make(), []
    for layer in model.towers["decoder"].stack.layers:
        branch = layer.steps["cross"].branches["cross"].body
        branch.key.register_forward_hook(lambda *_: computed.append(1))
    model(ids, source=source, cache=cache)
    for rows in (torch.tensor([1, 1, 2]), torch.tensor([2, 0])):
        cache.select(rows)
        source, ids, source_ids = source.rows(rows), ids[rows], source_ids[rows]
        source_tags = source_tags.rows(rows)
        last = tokens(len(rows), 1, seed=5)
        out = model(last, source=source, cache=cache.fork())
        count = len(computed)
        for i in range(len(rows)):
            real = source_ids[i : i + 1, source_tags.position[i] >= 0]
            alone = model(torch.cat([ids[i], last[i]])[None], source=model.encode(real))
            assert close(out[i, -1], alone[0, -1])
        del computed[count:]
    assert len(computed) == 2  # once a layer


@torch.no_grad()
def test_an_empty_cache_can_be_selected_forked_and_cropped() -> None:
    cache = DenseCache()
    cache.select(torch.tensor([0]))
    cache.crop(0)
    assert cache.fork().length == cache.length == 0
    assert cache.next_position == 0


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_rows_forget_each_its_own(positions: str) -> None:
    """The last columns, other ones in each row, then what was moved together goes on as each row alone."""
    model, ids, tags, cache = build(positions), tokens(3, 5), ragged([5, 2, 4], 5), DenseCache()
    model(ids, tags=tags, cache=cache)
    rows = [ids[i, tags.position[i] >= 0] for i in range(3)]
    for turn, counts in enumerate(([1, 3, 0], [2, 0, 2], [0, 0, 0], [3, 3, 3])):
        new = tokens(3, 3, seed=turn)
        after = Tags.of(torch.as_tensor(cache.next_position) + torch.arange(3).expand(3, -1))
        model(new, tags=after, cache=cache)
        held = cache.length - 3
        kept = torch.arange(3) < torch.tensor(counts)[:, None]
        cache.forget(torch.cat([torch.ones(3, held, dtype=torch.bool), kept], 1))
        assert cache.length == held + max(counts), "the last columns go where no row keeps them"
        rows = [torch.cat([row, more[:count]]) for row, more, count in zip(rows, new, counts, strict=True)]
        if turn % 2:
            cache.compact()
            assert cache.length == max(map(len, rows))
        last = tokens(3, 1, seed=9)
        twin = cache.fork()
        out = model(last, tags=Tags.of(torch.as_tensor(twin.next_position)), cache=twin)
        assert close(out[:, -1], anew(model, [torch.cat([row, one]) for row, one in zip(rows, last, strict=True)]))


@torch.no_grad()
def test_what_is_forgotten_leaves_no_tag() -> None:
    model, cache, everywhere = build(), DenseCache(), torch.ones(1, 3, dtype=torch.bool)
    model(tokens(1, 3), tags=Tags.of(torch.arange(3)[None], prefix=everywhere, is_global=everywhere), cache=cache)
    cache.forget(torch.tensor([[True, False, True]]))
    assert cache._tags.position.tolist() == [[0, -1, 2]]
    assert cache._tags.prefix.tolist() == cache._tags.is_global.tolist() == [[True, False, True]]
    cache.forget(torch.zeros(1, 3, dtype=torch.bool))
    assert cache.length == 0
    cache.forget(torch.zeros(1, 0, dtype=torch.bool))
