"""Schedules by simulation: nobody starves, budgets are kept, blocks are exact, everything ends."""

from __future__ import annotations

import gc
import itertools

import pytest

from transpect.cache.block_pool import BlockPool
from transpect.serve.plan import Entry, Limits, Line, most_blocks
from transpect.serve.scheduler import Scheduler

from .simulation import World

CASES = list(itertools.product([False, True], [1.0, 3.0], [12, 40]))


def run(world: World, requests: int, *, every: int) -> None:
    """Let so many requests come and go; the blocks are counted once in so many passes."""
    while world.number < requests or world.left:
        if world.number < requests and world.random.random() < 0.4:
            world.ask(world.random.choice("abc"), world.random.choice([0, 0, 0, 1]))
        world.go_on()
        if world.left and world.random.random() < 0.05:
            world.end(world.random.choice(list(world.left)))
        if world.scheduler.passes % every == 0:
            world.check()
    world.check()
    assert len(world.ended) == requests
    prefixes = world.scheduler.prefixes
    assert world.pool.used == (len(prefixes) if prefixes else 0) and not world.scheduler.waiting
    if prefixes:
        assert world.scheduler.hits
        prefixes.clear()
    assert world.pool.used == 0


@pytest.mark.parametrize(("prefix", "overcommit", "blocks"), CASES)
def test_all_requests_end_and_blocks_are_exact(prefix: bool, overcommit: float, blocks: int) -> None:
    world = World(1, blocks, limits=Limits(8, 16, overcommit), prefix=prefix, deep=True)
    run(world, 120, every=3)
    assert bool(world.scheduler.preemptions) == (overcommit > 1) or world.scheduler.preemptions, "hard enough"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_million_requests(seed: int) -> None:
    prefix, overcommit = seed % 2 == 0, 1.0 + 2 * (seed // 2)
    world = World(seed, 400, 16, Limits(64, 64, overcommit), prefix=prefix, deep=False, eager=True)
    run(world, 250_000, every=997)


def entry(number: int, tokens: int, tenant: str = "", priority: int = 0) -> Entry:
    line = Line([0] * tokens, tokens - 1)
    return Entry(number, [line], 1, most_blocks([(tokens, 1)], 1, 4), tokens + 1, tenant, priority)


@pytest.mark.parametrize("ahead", [0, 16, 40, 1000])
def test_prompts_go_ahead_of_next_tokens_while_many_have_one(ahead: int) -> None:
    """Who writes waits for so many tokens of prompts at a time, and for none where more than twice as many write."""
    scheduler = Scheduler(BlockPool(4, 1000), Limits(16, 8, 1.0, alone=16, ahead=ahead))
    writers, readers = [entry(number, 1) for number in range(3)], [entry(number, 50) for number in range(3, 8)]
    for own in (*writers, *readers):
        scheduler.add(own)
    scheduler.admit()
    waited, longest = 0, 0
    while any(own.left for own in readers):
        waits = 2 * sum(own.left > 2 for own in readers) > 3 + sum(0 < own.left <= 2 for own in readers)
        plan = scheduler.plan()
        counts = {read.entry.number: read.stop - read.start for read in plan.reads}
        if any(own.number in counts for own in writers):
            assert all(own.number in counts for own in writers)
            waited = 0
        else:
            assert waits and waited < ahead
            waited += sum(counts.values())
        longest = max(longest, waited)
        scheduler.commit(plan)
        for own in writers:
            if own.number in counts:
                own.lines[0].tokens.append(0)
    assert min(ahead, 100) <= longest < ahead + 16


def order(entries: list[Entry], more: list[Entry] | None = None) -> list[int]:
    """The numbers of requests in the order in which they end, one at a time; others come one after each end."""
    scheduler, found, coming = Scheduler(BlockPool(4, 100), Limits(1, 64, 1.0)), list[int](), iter(more or [])
    for own in entries:
        scheduler.add(own)
    while scheduler.waiting or scheduler.running:
        scheduler.admit()
        scheduler.commit(scheduler.plan())
        for own in [own for own in scheduler.running if not own.left]:
            scheduler.remove(own)
            found.append(own.number)
            if (new := next(coming, None)) is not None:
                scheduler.add(new)
    return found


def test_a_tenant_alone_is_served_in_order() -> None:
    assert order([entry(n, 4 + n % 3) for n in range(9)]) == list(range(9))


def test_tenants_take_turns_whoever_asks_for_more() -> None:
    found = order([*(entry(n, 8, "many") for n in range(20)), *(entry(20 + n, 8, "few") for n in range(4))])
    places = [found.index(20 + n) for n in range(4)]
    assert places == sorted(places) and places[-1] <= 8
    long = order([*(entry(n, 40, "long") for n in range(6)), *(entry(6 + n, 8, "short") for n in range(10))])
    assert [number for number in long[:6] if number >= 6] == [6, 7, 8, 9, 10][:5]


def test_the_higher_priority_goes_first_and_waiting_outgrows_it() -> None:
    assert order([entry(0, 8), entry(1, 8, priority=-1), entry(2, 8, priority=1)]) == [2, 0, 1]
    urgent = [entry(1 + n, 399, f"new {n}", priority=1) for n in range(400)]
    assert 200 < order([entry(0, 8, "old"), urgent[0]], urgent[1:]).index(0) < 400


def test_a_higher_priority_takes_the_place_of_a_lower_one() -> None:
    scheduler = Scheduler(BlockPool(4, 100), Limits(1, 16, 1.0))
    low, high = entry(0, 50), entry(1, 8, priority=1)
    scheduler.add(low)
    scheduler.admit()
    scheduler.plan()
    scheduler.add(high)
    assert scheduler.admit() == [high] and scheduler.plan().aside == [low]
    assert not low.lines[0].table.blocks and scheduler.waiting == 1


def test_prompts_leave_room_for_tokens_and_tokens_for_prompts() -> None:
    scheduler = Scheduler(BlockPool(4, 500), Limits(40, 16, 1.0))
    writing, prompt = [entry(n, 1) for n in range(30)], entry(30, 200)
    for own in (*writing, prompt):
        scheduler.add(own)
    scheduler.admit()
    read = dict.fromkeys((*writing, prompt), 0)
    for _ in range(20):
        for own in writing:
            if not own.left:
                own.lines[0].tokens.append(0)
                own.lines[0].wanted += 1
        for one in scheduler.plan().reads:
            read[one.entry] += one.stop - one.start
    assert read[prompt] == 20 * 4
    assert {read[own] for own in writing} == {8}


def _entries() -> int:
    """How many there are in this process, those of other tests among them."""
    gc.collect()
    return sum(type(own) is Entry for own in gc.get_objects())


def test_who_leaves_while_waiting_leaves_nothing_behind() -> None:
    scheduler = Scheduler(BlockPool(4, 100), Limits(1, 64, 1.0))
    first, second = entry(0, 8), entry(1, 8)
    for own in (first, second):
        scheduler.add(own)
    assert scheduler.admit() == [first]
    before = _entries()
    for number in range(2, 500):
        leaving = entry(number, 8)
        scheduler.add(leaving)
        assert scheduler.waiting == 2
        scheduler.remove(leaving)
        assert scheduler.waiting == 1 and not scheduler.admit()
    assert _entries() - before < 6, "of those that have left"
    scheduler.remove(first)
    assert scheduler.admit() == [second] and not scheduler.waiting
