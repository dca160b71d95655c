"""Every cache under everything that its protocol can do: going on equals one pass over what should be left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError, MaskError
from transpect.cache import (
    BlockPool,
    DenseCache,
    Int8Cache,
    PagedCache,
    Pages,
    SegmentMemory,
    SinksCache,
    Sliding,
    SlidingCache,
    StaticCache,
    SumsCache,
)
from transpect.core import NO_CACHE, Causal, OtherLayers, SameSegment, Window
from transpect.core.positions.base import unmoved

TOLERANCE = 1e-10  # float64
WIDTH, LENGTHS = 6, [6, 2, 5]
DISTANCES = ("none", "rope", "rope-partial", "rope-yarn", "alibi", "kerple", "t5", "t5-per-layer", "transformer-xl")
SCHEMES = ("learned", "rope", "alibi", "t5", "transformer-xl")
FEWER = ("rope", "transformer-xl")  # what a scheme needs of any cache, the dense one shows


@dataclass(frozen=True)
class Kind:
    """A cache to try.

    Attributes:
        make: a new one.
        positions: schemes that it serves.
        fresh: what one pass over what should be left is given; None is no cache.
        refuses: what it can't do.
        sums: it is for models without softmax.
        is_memory: it holds hidden states.
    """

    make: Callable[[], Any]
    positions: tuple[str, ...] = FEWER
    fresh: Callable[[], Any] = lambda: None
    refuses: tuple[str, ...] = ()
    sums: bool = False
    is_memory: bool = False


KINDS = {
    "dense": Kind(DenseCache, SCHEMES),
    "static": Kind(lambda: StaticCache(40)),
    "paged": Kind(lambda: PagedCache(Pages(BlockPool(3)))),
    "int8": Kind(lambda: Int8Cache(2), fresh=lambda: Int8Cache(2)),
    "sliding": Kind(lambda: SlidingCache(100), refuses=("forget",)),
    "sinks": Kind(lambda: SinksCache(2, 38, [unmoved] * 2)),  # of which nothing falls out: see its own tests
    "sums": Kind(SumsCache, ("none", "rope"), refuses=("crop", "forget", "forget-end"), sums=True),
    "memory": Kind(lambda: SegmentMemory(100), refuses=("forget",), is_memory=True),
}
SIDES = ("none", "left", "right", "holes")
CASES = [
    (kind, positions, side)
    for kind, of in KINDS.items()
    for positions in of.positions
    for side in (SIDES if kind == "dense" or positions == "rope" else ("left",))
]


def padding(side: str) -> torch.Tensor | None:
    column, length = torch.arange(WIDTH), torch.tensor(LENGTHS)[:, None]
    sides = {"left": column >= WIDTH - length, "right": column < length, "holes": (column + length) % 3 != 0}
    return sides.get(side)


@pytest.fixture
def batch(tools: Any, kind: str, positions: str, side: str) -> Any:
    """Three rows in a cache."""
    of = KINDS[kind]
    model = tools.built(positions, sums=of.sums)
    passed = tools.as_cache(model)
    if of.is_memory:
        passed = lambda ids, tags, held: model(ids, tags=tags, **({} if held is None else {"memory": held}))  # noqa: E731
    batch = tools.Batch(model, of.make(), passed, of.fresh)
    with torch.no_grad():
        batch.feed(tools.tokens(3, WIDTH), padding(side))
        yield batch


grid = pytest.mark.parametrize(("kind", "positions", "side"), CASES)


def can(batch: Any, kind: str, what: str, act: Callable[[], None]) -> bool:
    """Do it; where the cache can't, see that it says so and is as it was."""
    if what not in KINDS[kind].refuses:
        act()
        return True
    with pytest.raises(ConfigError) as error:
        act()
    assert error.value.remedy
    batch.goes_on(TOLERANCE, steps=1)
    return False


@grid
def test_crop(batch: Any, kind: str) -> None:
    """Then a longer piece is written over what was there, and taken back again."""
    for length, more in ((4, 5), (7, 1)):
        if not can(batch, kind, "crop", lambda length=length: batch.crop(length)):
            break
        assert batch.cache.length == length
        batch.feed(torch.full((3, more), length))
        batch.goes_on(TOLERANCE, steps=1)
    batch.crop(0)
    batch.columns = []
    batch.feed(torch.tensor([[3, 4, 5], [6, 7, 8]]))
    batch.goes_on(TOLERANCE)


@grid
def test_forks_go_their_own_ways(batch: Any, kind: str) -> None:
    twins = [batch, batch.fork(), batch.fork()]
    for turn in range(2):
        for number, twin in enumerate(twins):
            twin.goes_on(TOLERANCE, steps=1, seed=10 * number + turn)
    twins[1].keep_rows([2, 0])
    if "crop" not in KINDS[kind].refuses:
        twins[2].crop(3)
    for twin in twins:
        twin.goes_on(TOLERANCE, steps=1)


@grid
def test_rows_are_kept_repeated_and_reordered(batch: Any) -> None:
    for rows in ([0, 1, 2], [2, 0, 1, 1], [1, 3, 0], [2]):
        batch.keep_rows(rows)
        batch.goes_on(TOLERANCE, steps=1)


@grid
def test_compact(batch: Any, kind: str) -> None:
    """Columns that only a row that left had are gone."""
    before = batch.cache.length
    batch.keep_rows([1, 1])
    batch.compact()
    assert batch.cache.length <= before
    if kind in ("dense", "static", "paged", "int8", "sinks"):  # padding falls out of others by itself
        assert batch.cache.length == max(map(len, batch.columns))
    batch.goes_on(TOLERANCE)


@grid
def test_forget(batch: Any, kind: str, tools: Any) -> None:
    """The end of all rows, then of each row another part, as speculation does it, then anything."""
    batch.feed(tools.tokens(3, 3, seed=9))
    everywhere = torch.ones(3, batch.cache.length, dtype=torch.bool)
    batch.forget(everywhere)
    at_the_end = everywhere.clone()
    at_the_end[:, -2:] = False
    if not can(batch, kind, "forget-end", lambda: batch.forget(at_the_end)):
        return
    assert batch.cache.length == everywhere.shape[1] - 2
    batch.feed(tools.tokens(3, 3, seed=7))
    ragged = torch.ones(3, batch.cache.length, dtype=torch.bool)
    ragged[0, -1:] = ragged[1, -2:] = False
    if not can(batch, kind, "forget", lambda: batch.forget(ragged)):
        return
    batch.goes_on(TOLERANCE)
    batch.compact()
    batch.goes_on(TOLERANCE, steps=1)


@pytest.mark.parametrize("positions", DISTANCES)
@pytest.mark.parametrize("kind", ["dense", "static", "paged", "int8"])
@torch.no_grad()
def test_forget_inside(kind: str, positions: str, tools: Any) -> None:
    """In one layer, where the keys of later tokens do not know of those that go."""
    model = tools.build(positions, layers=1)
    batch = tools.Batch(model, KINDS[kind].make(), tools.as_cache(model), KINDS[kind].fresh)
    batch.feed(tools.tokens(3, 7), torch.tensor([[True] * 7, [True] * 5 + [False] * 2, [False] * 2 + [True] * 5]))
    inside = torch.ones(3, 7, dtype=torch.bool)
    inside[:, 3], inside[2, 4:6], inside[0, :2] = False, False, False
    batch.forget(inside)
    batch.goes_on(TOLERANCE)
    batch.keep_rows([2, 1])
    batch.goes_on(TOLERANCE, steps=1)


@pytest.mark.parametrize("pieces", [(1,) * 20, (9, 1, 10), (20,)], ids=str)
@pytest.mark.parametrize("positions", ["rope", "t5"])
@torch.no_grad()
def test_where_every_layer_sees_a_window_the_widest_is_enough(
    positions: str, pieces: tuple[int, ...], tools: Any
) -> None:
    """Windows of several widths, dilated, and packed documents; rows padded on the left; one column less is not."""
    others = (
        OtherLayers(at=(1,), visibility=Window(2, dilation=3)),
        OtherLayers(at=(2,), visibility=SameSegment() & (Window(3) | Window(5))),
    )
    model, ids = tools.build(positions, rule=Causal() & Window(4), layers=3, others=others), tools.tokens(2, 20)
    kind, tags = Sliding(), tools.left([20, 13], 20)
    kind.check(model.config)
    assert kind.limit(model.config) == 4
    whole, narrow = model(ids, tags=tags), model.config
    for cache, exact in ((kind.build(narrow), True), (SlidingCache(3), len(pieces) == 1)):
        done, out = 0, []
        for size in pieces:
            part = slice(done, done + size)
            out.append(model(ids[:, part], tags=tags.columns(part), cache=cache))
            done += size
        real = tags.position >= 0
        gap = float((torch.cat(out, 1) - whole)[real].abs().max())
        assert gap <= TOLERANCE if exact else gap > 1e-6
        assert cache.length <= 4


def test_a_layer_that_sees_everything_has_no_window(tools: Any) -> None:
    others = (OtherLayers(at=(1,), visibility=Window(4)),)
    for model in (tools.build(others=others), tools.build(rule=Window(4) | Causal())):
        with pytest.raises(ConfigError, match=r"every layer sees a window.*memory=N.*Dense"):
            Sliding().check(model.config)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_an_empty_one_can_do_everything(kind: str) -> None:
    cache = KINDS[kind].make()
    cache.select(torch.tensor([0]))
    cache.compact()
    cache.crop(0)
    cache.forget(torch.ones(2, 0, dtype=torch.bool))
    assert cache.fork().length == cache.length == cache.next_position == 0


@pytest.mark.parametrize("keep", [torch.ones(3, 9), torch.ones(3, 5, dtype=torch.bool), torch.ones(2, 6) > 0], ids=str)
@pytest.mark.parametrize("kind", ["dense", "static", "paged", "sliding"])
@torch.no_grad()
def test_a_mask_of_another_shape_is_refused(kind: str, keep: torch.Tensor, tools: Any) -> None:
    model, cache = tools.build(), KINDS[kind].make()
    model(tools.tokens(3, 6), cache=cache)
    with pytest.raises(MaskError, match="each column held"):
        cache.forget(keep)


@pytest.mark.parametrize("kind", ["sliding", "memory"])
@torch.no_grad()
def test_what_fell_out_does_not_come_back(kind: str, tools: Any) -> None:
    model = tools.build()
    held = SlidingCache(4) if kind == "sliding" else SegmentMemory(4)
    model(tools.tokens(2, 5), **{"cache" if kind == "sliding" else "memory": held})
    keep = torch.tensor([[True, True, True, False]] * 2)
    for act in (lambda: held.crop(3), lambda: held.forget(keep)):
        with pytest.raises(ConfigError, match=r"once others have fallen out.*fork"):
            act()
    held.crop(4)
    held.forget(keep | True)
    held.crop(0)
    assert (held.length, held.next_position) == (0, 0)
    held.fork().crop(3)


def test_no_cache_holds_nothing_to_take_back() -> None:
    NO_CACHE.crop(0)
    NO_CACHE.forget(torch.ones(2, 0, dtype=torch.bool))
    NO_CACHE.compact()
    NO_CACHE.select(torch.tensor([0]))
    assert NO_CACHE.fork() is NO_CACHE
