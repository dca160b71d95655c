"""What rules say of blocks, against the mask that they stand for; and the plans made of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from transpect.base.codec import from_data, to_data
from transpect.core import (
    All,
    AnyOf,
    Blocks,
    Causal,
    EdgeBlocks,
    FromGlobal,
    Full,
    GlobalTokens,
    PrefixLM,
    RandomBlocks,
    SameSegment,
    Tags,
    UpTo,
    Visibility,
    Window,
)
from transpect.core.block_visibility import last_block
from transpect.core.plan import Tile, plan
from transpect.core.spans import Spans
from transpect.core.view import KEPT, View

RULES: list[Visibility] = [
    Full(),
    Causal(),
    Window(1),
    Window(5),
    Window(4, both_ways=True),
    Window(2, dilation=3),
    Window(3, both_ways=True, dilation=2),
    PrefixLM(),
    SameSegment(),
    GlobalTokens(),
    FromGlobal(),
    All((Causal(), SameSegment())),
    AnyOf((Window(3), GlobalTokens())),
    UpTo(12),
    Blocks(3),
    Blocks(2, reach=0),
    EdgeBlocks(3),
    RandomBlocks(2, n=2, seed=1),
    RandomBlocks(3, n=1, seed=4, reach=0),
]
TIGHT = [
    rule
    for rule in RULES
    if isinstance(rule, Full | Causal | Window | UpTo | Blocks | EdgeBlocks | RandomBlocks | GlobalTokens | FromGlobal)
]
SIZES = [(1, 1), (4, 4), (3, 5), (8, 2), (5, 64)]
LENGTH = 21


def chosen(*shape: int, seed: int, of: int = 3) -> Tensor:
    return torch.randint(0, of, shape, generator=torch.Generator().manual_seed(seed)) == 0


def padded(left: tuple[int, ...], right: tuple[int, ...], seed: int) -> Tags:
    column = torch.arange(LENGTH)
    real = torch.stack([(column >= a) & (column < LENGTH - b) for a, b in zip(left, right, strict=True)])
    return Tags.padded(
        real,
        prefix=real & (real.cumsum(-1) <= torch.tensor([3, 9, 0])[:, None]),
        is_global=chosen(*real.shape, seed=seed, of=6),
        segment=(real.cumsum(-1) > 8).long(),
    )


def packed() -> Tags:
    """Documents of several lengths one after another, each counted from 0, then padding."""
    rows = [[6, 9, 3], [21], [2, 2, 2, 15]]
    position = torch.full((3, LENGTH), -1)
    segment = torch.zeros_like(position)
    for row, lengths in enumerate(rows):
        done = 0
        for document, length in enumerate(lengths):
            position[row, done : done + length] = torch.arange(length)
            segment[row, done : done + length] = document
            done += length
        segment[row, done:] = len(lengths)
    return Tags.of(position, segment=segment, is_global=position == 0, prefix=position < 2)


def disorder() -> Tags:
    generator = torch.Generator().manual_seed(5)
    position = torch.randint(-1, 30, (3, LENGTH), generator=generator)
    segment = torch.randint(0, 3, (3, LENGTH), generator=generator)
    return Tags.of(position, segment=segment, prefix=chosen(3, LENGTH, seed=6), is_global=chosen(3, LENGTH, seed=7))


def far_segments() -> Tags:
    """Numbers of documents at both ends of what 64 bits hold."""
    ends = torch.iinfo(torch.int64)
    of = torch.tensor([ends.min, ends.max, 0, ends.max - 1])
    tags = padded((0, 4, 17), (0, 5, 0), 8)
    return replace(tags, segment=of[torch.arange(LENGTH) // 6].repeat(3, 1))


def cached(tags: Tags, done: int) -> tuple[Tags, Tags]:
    return tags.columns(slice(done, None)), tags


def counted(rows: int = 2, length: int = LENGTH, start: int = 0) -> Tags:
    """Rows without padding of which that is not known, of one document, with nothing marked."""
    return Tags.of(torch.arange(start, start + length).repeat(rows, 1))


STATES = {
    "dense": (Tags.dense(3, LENGTH), Tags.dense(3, LENGTH)),
    "left": 2 * (padded((0, 4, 17), (0, 0, 0), 1),),
    "right": 2 * (padded((0, 0, 0), (0, 5, 18), 2),),
    "both": 2 * (padded((2, 9, 0), (3, 1, 21), 3),),
    "packed": 2 * (packed(),),
    "disorder": 2 * (disorder(),),
    "other keys": (disorder(), padded((0, 4, 17), (0, 0, 2), 1)),
    "cached, left": cached(padded((0, 4, 17), (0, 0, 0), 1), 16),
    "cached, packed": cached(packed(), 20),
    "cached, dense": cached(Tags.dense(3, LENGTH), 13),
    "horizon ahead": 2 * (replace(padded((0, 4, 0), (0, 0, 9), 4), horizon=torch.tensor([31, 17, 40])),),
    "horizon ahead, dense": cached(replace(Tags.dense(3, LENGTH), horizon=torch.tensor([31, 11, 40])), 4),
    "one token": 2 * (Tags.dense(3, 1),),
    "far segments": 2 * (far_segments(),),
}
PAIRS = [combine((a, b)) for combine in (All, AnyOf) for a, b in itertools.product(RULES, RULES)]
DEEP = [
    first((second((a, b)), c))
    for (first, second), (a, b, c) in zip(
        itertools.cycle([(All, AnyOf), (AnyOf, All)]), itertools.permutations(RULES[1::2], 3), strict=False
    )
]


def blockwise(mask: Tensor, real: Tensor, sizes: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """For each pair of blocks, by looking at each entry: whether one is visible; whether all of real tokens are."""
    some, every = [
        torch.stack([torch.stack([look(part) for part in rows.split(sizes[1], 2)], -1) for rows in cut], 1)
        for look, cut in (
            (lambda part: part.flatten(1).any(1), mask.split(sizes[0], 1)),
            (lambda part: part.flatten(1).all(1), (mask | ~real).split(sizes[0], 1)),
        )
    ]
    return some, every


def bounded(rule: Visibility, query: Tags, key: Tags, sizes: tuple[int, int]) -> tuple[Tensor, ...]:
    """What the rule says of blocks, and what is so; each as some, every [B, NQ, NK]. Blocks of padding are left out."""
    spans = Spans.of(query, sizes[0]), Spans.of(key, sizes[1])
    some, every = rule.bounds(*spans)
    real = (query.position >= 0)[:, :, None] & (key.position >= 0)[:, None, :]
    expected = blockwise(rule.mask(query, key), real, sizes)
    asked = spans[0].any_real[:, :, None] & spans[1].any_real[:, None, :]
    assert some.shape == every.shape == expected[0].shape == asked.shape
    assert torch.equal(asked, blockwise(real, real, sizes)[0])
    return some & asked, every & asked, expected[0], expected[1] & asked


def test_every_rule_has_a_row() -> None:
    kinds = {kind for kind, rule in Visibility.kinds().items() if rule.__module__.startswith("transpect.")}
    assert {rule.kind for rule in RULES} == kinds


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_rules_say_of_themselves_is_so(rule: Visibility) -> None:
    """A rule that its `probe` does not show in full would be taken for causal, and decoded from a cache."""
    assert from_data(Visibility, to_data(rule)) == rule
    for prefix in (False, True):
        rows = [Tags.of(torch.arange(n)[None], prefix=torch.full((1, n), prefix)) for n in range(1, 40)]
        assert rule.looks_ahead(prefix=prefix) == any(bool(rule.mask(tags, tags).triu(1).any()) for tags in rows)
    position = torch.arange(LENGTH).expand(3, -1)
    alone = rule.mask(Tags.of(position), Tags.of(position))
    same: list[tuple[bool, Tags]] = [
        (rule.reads("prefix"), Tags.of(position, prefix=position < 5)),
        (rule.reads("is_global"), Tags.of(position, is_global=chosen(3, LENGTH, seed=2, of=6))),
        (rule.reads_length, Tags.of(position, horizon=torch.tensor([LENGTH, LENGTH + 5, LENGTH + 30]))),
        (not rule.reads_distance_alone, Tags.of(position + 7)),
    ]
    for depends, tags in same:
        assert depends or torch.equal(rule.mask(tags, tags), alone)
    assert torch.equal(rule.plain().mask(Tags.of(position), Tags.of(position)), alone)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_rules_say_of_blocks_is_so(rule: Visibility, state: str) -> None:
    for sizes in SIZES:
        some, every, is_some, is_every = bounded(rule, *STATES[state], sizes)
        assert not (is_some & ~some).any()
        assert not (every & ~is_every).any()


@pytest.mark.parametrize("turn", range(len(STATES)))
def test_what_composed_rules_say_of_blocks_is_so(turn: int) -> None:
    """Every pair of rules, and compositions of compositions; states and sizes take turns."""
    states, sizes = itertools.cycle(STATES.values()), itertools.cycle(SIZES)
    for index, rule in enumerate((*PAIRS, *DEEP)):
        state, size = next(states), next(sizes)
        if index % len(STATES) == turn:
            some, every, is_some, is_every = bounded(rule, *state, size)
            assert not (is_some & ~some).any(), rule
            assert not (every & ~is_every).any(), rule


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("rule", TIGHT, ids=str)
def test_bounds_are_tight_on_rows_without_padding(rule: Visibility, sizes: tuple[int, int]) -> None:
    tags = replace(counted(), is_global=chosen(2, LENGTH, seed=3, of=5))
    short = counted(length=5)  # of two blocks, first and last
    for query, key in (cached(tags, 0), cached(tags, 14), cached(counted(start=7), 2), cached(short, 0)):
        some, every, is_some, is_every = bounded(rule, query, key, sizes)
        assert torch.equal(some, is_some)
        assert torch.equal(every, is_every)


@pytest.mark.parametrize("sizes", SIZES)
def test_documents_in_order_are_told_apart(sizes: tuple[int, int]) -> None:
    segment = torch.tensor([[0] * 4 + [1] * 9 + [2] * 8, [3] * LENGTH])
    tags = replace(counted(), segment=segment)
    some, every, is_some, is_every = bounded(SameSegment(), *cached(tags, 6), sizes)
    assert torch.equal(some, is_some)
    assert torch.equal(every, is_every)


@pytest.mark.parametrize("size", [1, 2, 5, 21, 64])
@pytest.mark.parametrize("state", STATES)
def test_spans_are_what_each_run_holds(state: str, size: int) -> None:
    tags = STATES[state][1]
    spans = Spans.of(tags, size)
    for row, n in itertools.product(range(3), range(spans.first.shape[1])):
        part = slice(n * size, (n + 1) * size)
        real = tags.position[row, part] >= 0
        position, segment = (tag[row, part][real].tolist() for tag in (tags.position, tags.segment))
        assert bool(spans.any_real[row, n]) == bool(real.any())
        assert bool(spans.all_real[row, n]) == bool(real.all())
        if position:
            assert (int(spans.first[row, n]), int(spans.last[row, n])) == (min(position), max(position))
            assert (int(spans.segment_low[row, n]), int(spans.segment_high[row, n])) == (min(segment), max(segment))
        else:
            assert spans.first[row, n] > spans.last[row, n]
        for tag, some, every in (
            (tags.prefix, spans.any_prefix, spans.all_prefix),
            (tags.is_global, spans.any_global, spans.all_global),
        ):
            assert bool(some[row, n]) == bool(tag[row, part][real].any())
            assert bool(every[row, n]) == bool(tag[row, part][real].all())


@dataclass(frozen=True)
class Odd(Visibility):
    """A rule that says nothing of blocks."""

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return (query.position + key.position) % 2 == 1


PLANNED = [*RULES, Odd(), Odd() & Window(4), *PAIRS[5::37], *DEEP[::61]]


def laid(view: View, tiles: list[Tile], shape: tuple[int, ...], size_k: int) -> Tensor:
    """[B, T, S] int: how often each entry is visible in some tile, the blocks that are known to be whole unmasked."""
    count = torch.zeros(shape, dtype=torch.long)
    for tile in tiles:
        columns = torch.arange(shape[2])[tile.columns]
        assert columns.tolist() == sorted(set(columns.tolist()))
        assert tile.whole == all(tile.wholes)
        mask = view.tile(tile.rows, tile.columns)
        assert (mask is None) == view.everything
        blocks = columns.split(size_k) if isinstance(tile.columns, slice) else runs(columns, size_k)
        visible = torch.ones(1, 1, len(range(*tile.rows.indices(shape[1]))), len(columns)) if mask is None else mask
        done = 0
        for block, whole in zip(blocks, tile.wholes, strict=True):
            part = visible[:, 0, :, done : done + len(block)].long()
            count[:, tile.rows, int(block[0]) : int(block[-1]) + 1] += torch.ones_like(part) if whole else part
            done += len(block)
    return count


def runs(columns: Tensor, size: int) -> list[Tensor]:
    return [columns[columns // size == block] for block in (columns // size).unique().tolist()]


@pytest.mark.parametrize("state", STATES)
def test_the_tiles_of_a_plan_are_the_mask(state: str) -> None:
    """Nothing lost, nothing twice, nothing seen that is hidden."""
    query, key = STATES[state]
    for rule, (size_q, size_k) in zip(PLANNED, itertools.cycle(SIZES), strict=False):
        view = View(rule, query, key)
        mask = view.mask[:, 0]
        tiles = view.plan(size_q, size_k)
        assert torch.equal(laid(view, tiles, mask.shape, size_k), mask.long()), rule
        rows = [tile.rows for tile in tiles]
        assert [row.start for row in rows] == sorted({row.start for row in rows})
        assert all(row.start % size_q == 0 and row.stop == min(row.start + size_q, query.shape[1]) for row in rows)


@pytest.mark.parametrize("rule", PLANNED, ids=str)
def test_what_is_known_of_rows_changes_no_plan(rule: Visibility) -> None:
    for query, key in (cached(Tags.dense(2, LENGTH), 0), cached(Tags.dense(2, LENGTH, start=4), 14)):
        known = plan(rule, query, key, 4, 3)
        found = plan(rule, replace(query, start=None), replace(key, start=None), 4, 3)
        assert [said(tile) for tile in known] == [said(tile) for tile in found]
        for tile in known:
            view = View(rule, query, key)
            mask = view.tile(tile.rows, tile.columns)
            expected = view.mask[:, :, tile.rows][..., tile.columns]
            assert bool(expected.all()) if mask is None else torch.equal(mask.expand_as(expected), expected)


def said(tile: Tile) -> tuple[object, ...]:
    columns = tile.columns if isinstance(tile.columns, slice) else tile.columns.tolist()
    return str(tile.rows), str(columns), tile.wholes


def test_blocks_that_adjoin_are_a_slice_and_others_an_index() -> None:
    tags = Tags.dense(1, 20)
    assert [said(tile) for tile in plan(Window(3), tags, tags, 8, 4)] == [
        ("slice(0, 8, None)", "slice(0, 8, None)", (False, False)),
        ("slice(8, 16, None)", "slice(4, 16, None)", (False, False, False)),
        ("slice(16, 20, None)", "slice(12, 20, None)", (False, False)),
    ]
    assert [said(tile) for tile in plan(Causal(), tags.columns(slice(16, 20)), tags, 4, 8)] == [
        ("slice(0, 4, None)", "slice(0, 20, None)", (True, True, False))
    ]
    far = AnyOf((Blocks(4, reach=0), EdgeBlocks(4)))
    assert said(plan(far, tags, tags, 4, 4)[2]) == (
        "slice(8, 12, None)",
        str([0, 1, 2, 3, *range(8, 12), *range(16, 20)]),
        (True, True, True),
    )
    marked = replace(tags, position=torch.where(tags.position < 8, -1, tags.position), start=None)
    assert [said(tile)[:2] for tile in plan(Full(), marked, marked, 8, 4)] == [
        ("slice(8, 16, None)", "slice(8, 20, None)"),
        ("slice(16, 20, None)", "slice(8, 20, None)"),
    ]
    assert plan(Full(), tags.columns(slice(0, 0)), tags, 4, 4) == []


def test_tags_of_columns_by_index() -> None:
    for tags in (packed(), Tags.dense(3, LENGTH, start=4)):
        for index in (torch.tensor([3, 4, 5]), torch.tensor([0, 7, 20])):
            part = tags.columns(index)
            assert part.start is None and torch.equal(part.horizon, tags.horizon)
            for name in ("position", "segment", "prefix", "is_global"):
                assert torch.equal(getattr(part, name), getattr(tags, name)[:, index])


def area(tiles: list[Tile], keys: int) -> int:
    return sum((tile.rows.stop - tile.rows.start) * len(torch.arange(keys)[tile.columns]) for tile in tiles)


@pytest.mark.parametrize(
    "rule", [Window(64), Window(32, both_ways=True), Causal() & Window(16, dilation=4), Window(64) & SameSegment()]
)
def test_the_plan_of_a_window_grows_with_length_alone(rule: Visibility) -> None:
    """Each of 16 more queries looks at 64 keys and what fills up the blocks at either end."""
    for tags in (Tags.dense, counted):
        areas = {n: area(plan(rule, tags(1, n), tags(1, n), 16, 16), n) for n in (512, 1024, 2048)}
        assert areas[2048] - areas[1024] == 2 * (areas[1024] - areas[512])
        assert areas[2048] <= 2048 * (64 + 2 * 16)


def test_plans_ask_for_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("a mask was made")

    for rule in {type(rule) for rule in RULES}:
        monkeypatch.setattr(rule, "sees", refuse)
    for rule in RULES:
        for query, key in STATES.values():
            View(rule, query, key).plan(4, 4)


@pytest.mark.parametrize("rule", [Window(2, dilation=12), Blocks(2) | RandomBlocks(2, n=2, seed=9)], ids=str)
def test_what_was_kept_while_answering_serves_training(rule: Visibility) -> None:
    """Plans and draws outlive a pass; an index made in inference mode could not be saved for a backward pass."""
    tags = Tags.dense(1, 37)
    key = torch.randn(37, 3, requires_grad=True)
    for answering in (True, False):
        with torch.inference_mode(answering):
            view = View(rule, tags, tags)
            tiles = [(tile.columns, view.tile(tile.rows, tile.columns)) for tile in view.plan(4, 2)]
    assert any(isinstance(columns, Tensor) for columns, _ in tiles)
    for columns, mask in tiles:
        assert mask is not None
        torch.where(mask[0, 0], key[columns].sum(-1), 0).square().sum().backward()


def test_kept_draws_are_the_draws() -> None:
    for rule, lengths in itertools.product(
        (RandomBlocks(2, n=2, seed=1), RandomBlocks(2, n=2, seed=2), RandomBlocks(1, n=3, seed=1, reach=0)),
        ([9, 21, 9], [21, 9, 14], [21, 21, 21], [40, 1, 9]),
    ):
        tags = replace(counted(3), horizon=torch.tensor(lengths))
        blocks = tags.position // rule.size
        last = last_block(tags, rule.size)
        drawn = rule.draws(int(max(blocks.amax(), last.amax())) + 1, last)
        expected = torch.stack([drawn[row][blocks[row]][:, blocks[row]] for row in range(3)])
        for _ in range(2):
            assert torch.equal(rule.mask(tags, tags), expected)


def test_tiles_are_kept_within_a_bound() -> None:
    tags = Tags.dense(1, 4 * KEPT)
    view = View(Causal(), tags, tags)
    first, last = slice(0, 64), slice(64, 128)
    near = view.tile(first, first)
    assert view.tile(first, slice(0, 64)) is near
    assert view.tile(last, first) is not near
    every_third = torch.arange(0, 60, 3)
    by_index = view.tile(first, every_third)
    assert by_index is not None and view.tile(first, every_third) is by_index
    held = sum(
        tile.numel()
        for tile in (view.tile(tile.rows, tile.columns) for tile in view.plan(512, 512))
        if tile is not None
    )
    assert held > KEPT * 4 * KEPT
    again = [view.tile(tile.rows, tile.columns) is view.tile(tile.rows, tile.columns) for tile in view.plan(512, 512)]
    assert again[0] and not again[-1]


def test_rows_that_are_alike_share_a_tile() -> None:
    tags = Tags.dense(3, 12)
    part = slice(0, 6)
    one = Window(3), RandomBlocks(2, n=1, seed=0) | UpTo(3)
    assert [View(rule, tags, tags).tile(part, part).shape[0] for rule in one] == [1, 1]  # type: ignore[union-attr]
    ahead = replace(tags, horizon=torch.tensor([12, 12, 30]))
    assert [View(rule, ahead, ahead).tile(part, part).shape[0] for rule in one] == [1, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize(("width", "dilation"), list(itertools.product((1, 2, 3, 8), (1, 2, 5))))
@pytest.mark.parametrize("both_ways", [False, True])
def test_a_dilated_window_sees_every_nth_key(width: int, dilation: int, both_ways: bool) -> None:
    """Longformer §3.1: a window of w keys with gaps between them reaches dilation times as far."""
    tags = Tags.dense(1, 30)
    mask = Window(width, both_ways=both_ways, dilation=dilation).mask(tags, tags)[0]
    for i, j in itertools.product(range(30), range(30)):
        steps, rest = divmod(abs(i - j), dilation)
        assert bool(mask[i, j]) == (rest == 0 and steps < width and (both_ways or j <= i))


def test_rules_that_read_distances_alone_are_alike_along_the_diagonal() -> None:
    rules = [*RULES, *(All(pair) for pair in itertools.product(RULES, RULES))]
    by_distance = [rule for rule in rules if rule.reads_distance_alone]
    assert {type(rule) for rule in by_distance} == {Full, Causal, Window, All}
    for rule in by_distance:
        mask, moved = (rule.mask(tags, tags)[0] for tags in (Tags.dense(1, LENGTH), Tags.dense(1, LENGTH, start=50)))
        assert torch.equal(mask[1:, 1:], mask[:-1, :-1]) and torch.equal(mask, moved)
        tags = Tags.of(
            torch.randint(-1, 9, (2, 9)), is_global=torch.rand(2, 9) > 0.5, segment=torch.arange(18).view(2, 9)
        )
        plain = Tags.of(tags.position)
        assert torch.equal(rule.mask(tags, tags), rule.mask(plain, plain))


def test_a_list_of_rules_is_as_good_as_a_tuple() -> None:
    listed = All([Causal(), Window(3)])  # type: ignore[arg-type]
    tags = Tags.dense(1, 8)
    assert listed == Causal() & Window(3)
    assert len(plan(listed, tags, tags, 4, 4)) == 2
