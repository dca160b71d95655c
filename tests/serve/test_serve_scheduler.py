"""Schedules by simulation: nobody starves, budgets are kept, blocks are exact, everything ends."""

from __future__ import annotations

import itertools

import pytest

from transpect.serve.plan import Limits

from .simulation import World

CASES = list(itertools.product([False, True], [1.0, 3.0], [12, 40]))


@pytest.mark.parametrize(("prefix", "overcommit", "blocks"), CASES)
def test_all_requests_end_and_blocks_are_exact(prefix: bool, overcommit: float, blocks: int) -> None:
    world = World(1, blocks, limits=Limits(8, 16, overcommit), prefix=prefix, deep=True)
    while world.number < 300 or world.left:
        if world.number < 300 and world.random.random() < 0.4:
            world.ask(world.random.choice("abc"), world.random.choice([0, 0, 0, 1]))
        world.go_on()
        if world.left and world.random.random() < 0.05:
            world.end(world.random.choice(list(world.left)))
        world.check()
    assert len(world.ended) == 300
    kept = len(world.scheduler.prefixes) if world.scheduler.prefixes else 0
    assert world.pool.used == kept and not world.scheduler.waiting
    if world.scheduler.prefixes:
        assert world.scheduler.hits
        world.scheduler.prefixes.clear()
    assert world.pool.used == 0
    if overcommit == 1.0:
        return
    assert world.scheduler.preemptions, "the case is hard enough"
