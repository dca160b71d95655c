"""An engine's requests: what they get, how they end, and what an engine says of itself."""

from __future__ import annotations

import asyncio

import pytest
import torch

from transpect.decode import GenerationParams, Request
from transpect.lm import LanguageModel
from transpect.serve import Draining, Engine, EngineDead, Job


@pytest.fixture
def lm(tiny: LanguageModel) -> LanguageModel:
    return tiny


def test_a_request_gets_what_generate_gives(lm: LanguageModel) -> None:
    engine = Engine(lm)
    request = Request([1, 2, 3], GenerationParams(max_new_tokens=5, temperature=1.0, seed=3, n=2))
    expected = lm.complete([1, 2, 3], max_new_tokens=5, temperature=1.0, seed=3, n=2)
    handle = engine.submit(Job(request))
    assert [own.ids for own in handle.result()] == [own.ids for own in expected]
    assert handle.usage.completion_tokens == 10 and handle.usage.prompt_tokens == 3

    async def taken() -> list[int | None]:
        return [event.token async for event in engine.submit(Job(request))]

    assert asyncio.run(taken()) == [token for own in zip(*(own.ids for own in expected), strict=True) for token in own]
    assert engine.drain(10)
    with pytest.raises(Draining):
        engine.submit(Job(request))
    engine.stop()
    with pytest.raises(EngineDead):
        engine.submit(Job(request))
    engine.restart()
    assert [own.ids for own in engine.submit(Job(request)).result()] == [own.ids for own in expected]
    engine.stop()
    assert torch.get_num_threads() == 1
