"""Requests that are cancelled, late, wrong or too many, and engines that fail, stop and begin anew."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError, ContextLengthError, GenerationError
from transpect.core import AttentionConfig, Full, ModelConfig, Pooled, StackConfig, Transformer
from transpect.decode import Event, GenerationParams, Request
from transpect.decode.sampling import Sampler
from transpect.lm import LanguageModel
from transpect.serve import Busy, Draining, EngineDead, Expired, Job
from transpect.serve.handle import Handle, wake
from transpect.serve.runner import Runner
from transpect.text.streaming import StreamDecoder


def job(new: int = 8, prompt: Any = (5, 9, 30), deadline: float | None = None, **params: Any) -> Job:
    own = GenerationParams(max_new_tokens=new, seed=1).override(params)
    return Job(Request(list(prompt), own), deadline=deadline)


@pytest.fixture
def gate(monkeypatch: Any) -> Iterator[threading.Semaphore]:
    """Passes of engines wait for it, one each; afterwards they are free."""
    allowed, free = threading.Semaphore(0), threading.Event()
    run = Runner.run

    def waiting(self: Any, *arguments: Any) -> Any:
        while not free.is_set() and not allowed.acquire(timeout=0.01):
            pass
        return run(self, *arguments)

    monkeypatch.setattr(Runner, "run", waiting)
    allowed.open = free.set  # type: ignore[attr-defined]
    yield allowed
    free.set()


def test_a_cancelled_request_frees_what_it_held(tiny: LanguageModel, engines: Any, gate: Any) -> None:
    engine = engines(tiny, prefix_cache=False)
    kept, gone = engine.submit(job(12)), engine.submit(job(100, range(3, 25)))
    for _ in range(4):
        gate.release()
    first = next(iter(gone))
    assert first.token is not None
    gone.cancel()
    gone.cancel()
    assert gone.cancelled and list(gone) == []
    gate.open()
    assert len(list(kept)) == 12
    stats = engine.stats()
    assert (stats.blocks_used, stats.cancelled, stats.finished, stats.running) == (0, 1, 1, 0)
    kept.cancel()
    assert not kept.cancelled


@pytest.mark.parametrize("params", [{}, {"num_beams": 3}, {"early_exit": 1}, {"penalty_alpha": 0.4, "top_k": 3}])
def test_cancelling_anywhere_leaves_nothing(tiny: LanguageModel, engines: Any, params: Any) -> None:
    engine = engines(tiny, token_budget=8, prompt_budget=8, blocks=60, overcommit=4.0)
    wanted = engine.submit(job(20, range(3, 20))).result()
    for round_ in range(3):
        handles = [engine.submit(job(30, range(3, 4 + 3 * n), **params)) for n in range(6)]
        keeper = engine.submit(job(20, range(3, 20)))
        for handle in handles[round_ % 2 :]:
            for _ in range(round_):
                next(iter(handle), None)
            handle.cancel()
        assert keeper.result()[0].ids == wanted[0].ids
        for handle in handles[: round_ % 2]:
            handle.result()
    engine.drain()
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.blocks_used) == (0, 0, 0)


def test_a_deadline_ends_a_request_and_no_other(tiny: LanguageModel, engines: Any) -> None:
    engine = engines(tiny)
    late, other = engine.submit(job(60, deadline=time.monotonic() - 1)), engine.submit(job(6))
    with pytest.raises(Expired):
        late.result()
    assert len(other.result()[0].ids) == 6
    assert engine.stats().blocks_used == 0 and engine.stats().failed == 1


@pytest.mark.parametrize("place", ["sampler", "text"])
def test_a_fault_in_one_request_ends_that_one(tiny: LanguageModel, engines: Any, monkeypatch: Any, place: str) -> None:
    engine = engines(tiny)
    wanted = engine.submit(job(10)).result()
    if place == "sampler":
        process = Sampler.process

        def faulty(self: Any, logits: Any, traces: Any) -> Any:
            if self.params[0].min_new_tokens == 3 and len(traces[0].written) == 4:
                raise MemoryError("planted")
            return process(self, logits, traces)

        monkeypatch.setattr(Sampler, "process", faulty)
    else:
        odd = engine.submit(job(10, (7, 7, 8), min_new_tokens=3)).result()[0].ids
        bad, push = next(token for token in odd if token not in wanted[0].ids), StreamDecoder.push

        def stumbling(self: Any, token: int) -> str:
            if token == bad:
                raise MemoryError("planted")
            return push(self, token)

        monkeypatch.setattr(StreamDecoder, "push", stumbling)
    handles = [engine.submit(job(10)), engine.submit(job(10, (7, 7, 8), min_new_tokens=3)), engine.submit(job(10))]
    with pytest.raises(MemoryError, match="planted"):
        handles[1].result()
    assert [handles[n].result()[0].ids for n in (0, 2)] == [wanted[0].ids] * 2
    stats = engine.stats()
    assert (stats.state, stats.failed, stats.blocks_used) == ("ready", 1, 0)


def test_an_engine_that_fails_says_so_and_begins_anew(tiny: LanguageModel, engines: Any, monkeypatch: Any) -> None:
    engine = engines(tiny)
    wanted = engine.submit(job(10)).result()
    asked = threading.Event()

    def failing(*_: Any) -> Any:
        asked.wait(20)
        raise IndexError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(Runner, "run", failing)
        handles = [engine.submit(job(10)) for _ in range(3)]
        asked.set()
        for handle in handles:
            with pytest.raises(EngineDead, match="IndexError") as caught:
                handle.result()
            assert isinstance(caught.value.__cause__, IndexError)
        with pytest.raises(EngineDead):
            engine.submit(job(10))
        assert engine.state == engine.stats().state == "dead" and engine.drain(0)
    engine.restart()
    assert engine.submit(job(10)).result() == wanted and engine.state == "ready"


def test_draining_and_stopping(tiny: LanguageModel, engines: Any, gate: Any) -> None:
    engine = engines(tiny)
    handle = engine.submit(job(4))
    assert not engine.drain(0.01)
    with pytest.raises(Draining):
        engine.submit(job(1))
    gate.open()
    assert engine.drain(20) and len(handle.result()[0].ids) == 4
    engine.restart()
    handle = engine.submit(job(4))
    engine.stop()
    assert handle.done and engine.state == "dead"


def test_what_waits_is_bounded(tiny: LanguageModel, engines: Any, gate: Any) -> None:
    engine = engines(tiny, max_waiting=2, max_rows=1)
    handles = [engine.submit(job(4))]
    gate.release()
    assert next(iter(handles[0])).token is not None
    while not engine.stats().running:
        time.sleep(0.001)
    handles += [engine.submit(job(4)) for _ in range(2)]
    with pytest.raises(Busy) as caught:
        engine.submit(job(4))
    assert 1 <= caught.value.retry_after <= 60
    gate.open()
    assert [len(own.result()[0].ids) for own in handles] == [3, 4, 4]
    small = engines(tiny, max_waiting_tokens=40)
    first = small.submit(job(30))
    with pytest.raises(Busy, match="tokens altogether"):
        small.submit(job(30))
    first.cancel()


def test_what_can_not_be_served_is_refused_at_once(tiny: LanguageModel, engines: Any) -> None:
    engine = engines(tiny, blocks=10, context=64)
    for wrong, error, what in (
        (job(10, range(3, 50)), ContextLengthError, "40 of its cache"),
        (job(10, range(3, 20), num_beams=6), ContextLengthError, "cache of 40 tokens"),
        (job(2, num_beams=40), GenerationError, "at most 16 sequences"),
        (job(2, [999]), GenerationError, "vocab_size"),
        (job(2, overflow="sinks"), ConfigError, "sinks"),
    ):
        with pytest.raises(error, match=what):
            engine.submit(wrong)
    assert engine.submit(job(0)).result()[0].finish_reason == "length"
    assert engine.stats().running == engine.stats().waiting == 0
    with pytest.raises(GenerationError, match="embed"):
        engine.call("generate", "a")
    with pytest.raises(GenerationError, match="can't embed"):
        engine.call("embed", "a").result(20)
    with pytest.raises(ConfigError, match="fit the memory"):
        engines(tiny, blocks=2**31 - 1)


def test_priorities_and_cached_tokens_over_an_event_loop(tiny: LanguageModel, engines: Any, gate: Any) -> None:
    engine = engines(tiny, max_rows=2)
    gate.open()

    async def one(priority: int, n: int) -> tuple[int, list[int | None]]:
        own = Job(job(30 + n).request, priority=priority)
        return priority, [event.token async for event in engine.submit(own)]

    async def all_of_them() -> list[tuple[int, list[int | None]]]:
        done = []
        for task in asyncio.as_completed([one(n % 3, n) for n in range(9)]):
            done.append(await task)
        return done

    found = asyncio.run(all_of_them())
    assert sorted(len(tokens) for _, tokens in found) == list(range(30, 39))
    longest = max(tokens for _, tokens in found)
    assert all(tokens == longest[: len(tokens)] for _, tokens in found)
    assert [priority for priority, _ in found][-1] == 0


def test_encoders_answer_calls_that_wait_together(engines: Any, tiny: LanguageModel) -> None:
    torch.manual_seed(1)
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), visibility=Full())
    model = Transformer(ModelConfig(61, 16, 40, encoder=stack, decoder=None, head=Pooled())).eval()
    lm = LanguageModel(model, tiny.tokenizer)
    engine = engines(lm)
    texts = [["a quick fox"], "the lazy dog", ["b", "cc", "a quick fox"], ["x" * 99], ["y" * 9]]
    futures = [engine.call("embed", own) for own in texts]
    wait(futures, 20)
    with pytest.raises(ContextLengthError):
        futures[3].result()
    for n in (0, 1, 2, 4):
        assert torch.allclose(futures[n].result(), lm.embed(texts[n]), atol=1e-6)
    with pytest.raises(GenerationError, match="writes none"):
        engine.submit(job(2))
    assert engine.drain(10)
    with pytest.raises(Draining):
        engine.call("embed", "a")


def test_engines_say_how_large_they_are(tiny: LanguageModel, engines: Any) -> None:
    notes = engines(tiny).notes
    assert len(notes) == 1 and notes[0].startswith("key-value cache: 200 blocks of 4 tokens, ")


LEFT = """
from transpect.core import AttentionConfig, ModelConfig, StackConfig, Transformer
from transpect.core.positions import Rope
from transpect.decode import Event, GenerationParams, Request
from transpect.lm import LanguageModel
from transpect.serve import Engine, EngineConfig
from transpect.serve.request import Job
from transpect.text import train_tokenizer

tokenizer = train_tokenizer("char", ["the quick brown fox"])
stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope())
config = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=32, context_length=4096, decoder=stack)
engine = Engine(LanguageModel(Transformer(config, seed=1), tokenizer), EngineConfig(max_rows=2))
handle = engine.submit(Job(Request([1, 2], GenerationParams(4000, temperature=0))))
next(iter(handle))
"""


@pytest.mark.slow
def test_a_process_that_leaves_its_engine_at_work_ends_well() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_an_event_loop_is_told_once_of_all_whose_events_came() -> None:
    async def told(count: int) -> int:
        loop, handles = asyncio.get_running_loop(), [Handle(job(), lambda own: None) for _ in range(count)]
        takers = [asyncio.ensure_future(anext(aiter(handle))) for handle in handles]
        await asyncio.sleep(0)
        calls, tell = list[Any](), loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *call: calls.append(call) or tell(*call)  # type: ignore[method-assign, assignment, func-returns-value]
        for number, handle in enumerate(handles):
            handle.put(Event(number, 7, "a", 0.0, None))
        wake(handles)
        assert [event.request for event in await asyncio.gather(*takers)] == list(range(count))
        return len(calls)

    assert asyncio.run(told(3)) == 1
