"""Continuous batching: whatever else runs, a request gets what it gets alone, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from threading import Thread
from typing import Any

import pytest
import torch

from transpect.decode import GenerationParams, Request, Result
from transpect.lm import LanguageModel
from transpect.serve import Engine, Job, runner, task
from transpect.serve.plan import Plan
from transpect.serve.scheduler import Scheduler

STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"temperature": 1.0, "top_p": 0.9, "n": 3},
    "penalties": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    "beams": {"num_beams": 3, "n": 2},
    "diverse beams": {"num_beams": 4, "num_beam_groups": 2},
    "drawn beams": {"num_beams": 3, "temperature": 1.0},
    "contrastive": {"penalty_alpha": 0.5, "top_k": 4},
    "best of": {"best_of": 3, "temperature": 1.0, "n": 2},
    "look-up": {"prompt_lookup_num_tokens": 3, "n": 2},
    "early exit": {"early_exit": 1, "temperature": 1.0},
    "guidance": {"guidance_scale": 1.5},
    "guided beams": {"guidance_scale": 1.5, "num_beams": 2},
    "regex": {"regex": "[a-f]+ [A-F]+"},
    "stop": {"stop": ["a", "e"]},
    "logprobs": {"logprobs": 3},
}

SOME = ("greedy", "sampling", "beams", "contrastive", "look-up", "early exit", "guided beams")


def request_of(lm: LanguageModel, seed: int, **params: Any) -> Request:
    random = Random(seed)
    start, ids = random.randint(0, 4), list(range(3, 40))
    prompt = [*ids[start : start + random.choice([0, 9, 20])], *random.choices(ids, k=random.randint(1, 9))]
    encodes = lm.model.config.encoder is not None
    source = random.choices(ids, k=random.randint(1, 9)) if encodes else None
    own = GenerationParams(max_new_tokens=random.randint(4, 16), seed=seed).override(params)
    return Request(prompt[:3] if encodes else prompt, own, source)


def expected(lm: LanguageModel, requests: Sequence[Request]) -> list[list[Result]]:
    """Each alone, without an engine."""
    return [lm._results([own], batch_size=32, memory=None, cache=None) for own in requests]


def served(engine: Engine, requests: Sequence[Request]) -> list[list[Result]]:
    return [handle.result() for handle in [engine.submit(Job(own)) for own in requests]]


def assert_same(found: Sequence[Sequence[Result]], wanted: Sequence[Sequence[Result]], logprobs: float = 0.0) -> None:
    for own, other in zip(found, wanted, strict=True):
        assert [(one.ids, one.text, one.finish_reason, one.seed) for one in own] == [
            (one.ids, one.text, one.finish_reason, one.seed) for one in other
        ]
        for one, two in zip(own, other, strict=True):
            assert one.logprobs == (pytest.approx(two.logprobs, abs=logprobs) if logprobs else two.logprobs)


HARD = {"blocks": 30, "overcommit": 9.0, "token_budget": 8, "prompt_budget": 8, "max_rows": 12}
"""Short of memory and of budget: prompts in pieces, and requests that are put aside."""


@pytest.mark.parametrize("shape", ["decoder", "window", "prefix", "encoder-decoder"])
def test_every_strategy_gives_what_it_gives_alone(
    models: Callable[[str], LanguageModel], engines: Any, monkeypatch: Any, shape: str
) -> None:
    lm = models(shape)
    names = STRATEGIES if shape == "decoder" else SOME
    requests = [request_of(lm, place, **STRATEGIES[name]) for place, name in enumerate([*names, *SOME[:3]])]
    easy = engines(lm)
    found = served(easy, requests)
    assert_same(found, expected(lm, requests), 1e-5)  # PyTorch reads long prompts there
    assert not easy.stats().preemptions and easy.stats().blocks_used == 0
    random, plan = Random(4), Scheduler.plan

    def putting_aside(self: Scheduler) -> Plan:
        if self.passes % 3 == 2 and self.preemptions < 30 and self.running:
            self._put_aside(random.choice(self.running))
        return plan(self)

    monkeypatch.setattr(Scheduler, "plan", putting_aside)
    hard = engines(lm, **HARD)
    assert_same(served(hard, requests), found)
    assert hard.stats().preemptions > 5 and hard.stats().blocks_used == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_needle_among_others(models: Callable[[str], LanguageModel], engines: Any, temperature: float) -> None:
    """Alone; among others; behind a prefix that is known; put aside and read again: bit for bit the same."""
    lm = models("decoder")
    needle = Request(list(range(3, 45)), GenerationParams(max_new_tokens=24, temperature=temperature, seed=5))
    wanted = served(engines(lm), [needle])
    assert_same(wanted, expected(lm, [needle]), 1e-5)
    for config in ({}, {"prefix_cache": False}, HARD):
        engine = engines(lm, **config)
        assert_same(served(engine, [needle]), wanted)
        others = [request_of(lm, seed, temperature=1.0) for seed in range(24)]
        handles = [engine.submit(Job(own)) for own in (*others[:12], needle, *others[12:], needle)]
        found = [own.result() for own in handles]
        assert_same([found[12], found[-1]], [*wanted, *wanted])
        cached = engine.submit(Job(needle))
        assert_same([cached.result()], wanted)
        assert (cached.usage.cached_tokens > 0) == engine.config.prefix_cache


def test_long_prompts_are_read_by_passes_of_many_rows(models: Any, engines: Any, monkeypatch: Any) -> None:
    """Which way a token is read is up to its own prompt: neither neighbours nor pieces, known beginnings or breaks
    change a bit; and what is known of a short prompt is no beginning of a long one."""
    monkeypatch.setattr(task, "FEW", 10)
    lm, passes = models("decoder"), list[int]()
    step = runner.Program.step_many
    monkeypatch.setattr(
        runner.Program, "step_many", lambda self, tokens, *rest: passes.append(len(tokens)) or step(self, tokens, *rest)
    )
    requests = [request_of(lm, place, **STRATEGIES[name]) for place, name in enumerate([*SOME, "logprobs", "guidance"])]
    long = [own for own in requests if len(own.prompt) > 10]
    found = [served(engines(lm), [own])[0] for own in long]
    assert len(long) > 3 and len(passes) >= len(long)
    assert_same(found, expected(lm, long), 1e-5)
    for config in ({}, {"prefix_cache": False}, HARD):
        engine = engines(lm, **config)
        others = [engine.submit(Job(own)) for own in requests if own not in long]
        for _ in range(2):
            assert_same(served(engine, long), found)
        assert all(own.result() for own in others)
    engine, prompt = engines(lm), list(range(3, 43))
    for length, cached in ((10, 0), (40, 0), (30, 28), (10, 8)):
        handle = engine.submit(Job(Request(prompt[:length], GenerationParams(max_new_tokens=3))))
        handle.result()
        assert handle.usage.cached_tokens == cached, length
    params = GenerationParams(max_new_tokens=9, temperature=1.0, seed=2)
    whole = served(engines(lm), [Request(prompt, params)])[0][0].ids
    rest = served(engines(lm), [Request(prompt, params, written=tuple(whole[:4]))])[0][0].ids
    assert [*whole[:4], *rest] == [*whole]


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_needle_among_two_hundred(models: Any, engines: Any, monkeypatch: Any, temperature: float) -> None:
    """As above, with long prompts by passes of many rows too, again and again, while others come and go."""
    monkeypatch.setattr(task, "FEW", 20)
    lm = models("decoder")
    needles = [
        Request(list(range(3, length)), GenerationParams(max_new_tokens=24, temperature=temperature, seed=5))
        for length in (12, 45)
    ]
    wanted = [served(engines(lm), [own])[0] for own in needles]
    engine, random = engines(lm, **{**HARD, "max_waiting": 400}), Random(3)
    kinds = list(STRATEGIES.values())
    others = [request_of(lm, seed, **random.choice(kinds)) for seed in range(200)]
    handles, found = [], []
    for place, other in enumerate(others):
        handles.append(engine.submit(Job(other, priority=random.choice([0, 0, 1]), tenant=random.choice("ab"))))
        if place % 10 == 5:
            found.append([engine.submit(Job(own, tenant=random.choice("ab"))) for own in needles])
        if place % 7 == 3:
            random.choice(handles).cancel()
    for both in found:
        assert_same([own.result() for own in both], wanted)
    stats = engine.stats()
    assert stats.preemptions and stats.prefix_hits
    assert engine.drain(120) and engine.stats().blocks_used == 0


@pytest.mark.slow
def test_ten_thousand_requests_of_all_kinds(models: Callable[[str], LanguageModel], engines: Any) -> None:
    """None is lost, none doubled, none gets another's answer; some are cancelled meanwhile, from another thread."""
    lm = models("decoder")
    kinds = [request_of(lm, place, **STRATEGIES[name]) for place, name in enumerate([*STRATEGIES, *STRATEGIES])]
    wanted = served(engines(lm), kinds)
    engine, random = engines(lm, blocks=60, overcommit=5.0, max_waiting=20_000), Random(1)
    asked = [random.randrange(len(kinds)) for _ in range(10_000)]
    handles = [engine.submit(Job(kinds[n], random.choice([0, 0, 1]), random.choice("abc"))) for n in asked]
    gone = set(random.sample(range(10_000), 500))
    canceller = Thread(target=lambda: [handles[n].cancel() for n in sorted(gone)])
    canceller.start()
    for n, handle in enumerate(handles):
        if n not in gone:
            assert_same([handle.result()], [wanted[asked[n]]])
    canceller.join()
    assert engine.drain(60)
    stats = engine.stats()
    assert (stats.blocks_used, stats.running, stats.waiting, stats.failed) == (0, 0, 0, 0)
    assert stats.finished + stats.cancelled == 10_000 and stats.preemptions and stats.prefix_hits


def test_neighbours_that_matter_are_noticed(models: Any, engines: Any, monkeypatch: Any) -> None:
    """The inverse: logits that know how many rows a pass has change what a request gets."""
    lm = models("decoder")
    needle = Request([5, 9, 30], GenerationParams(max_new_tokens=24, temperature=1.0, seed=5))
    step = runner.Program.step

    def leaking(self: Any, tokens: Any, *rest: Any) -> Any:
        logits, hidden = step(self, tokens, *rest)
        return logits + 0.5 * (len(tokens) > 1) * torch.linspace(0, 1, logits.shape[-1]).sin(), hidden

    monkeypatch.setattr(runner.Program, "step", leaking)
    engine = engines(lm)
    alone = served(engine, [needle])
    among = served(engine, [*(request_of(lm, seed) for seed in range(8)), needle])[-1:]
    with pytest.raises(AssertionError):
        assert_same(among, alone)


def test_a_prefix_hit_is_a_miss(models: Any, engines: Any) -> None:
    lm = models("decoder")
    engine, prompt = engines(lm), list(range(3, 50))
    job = Job(Request(prompt, GenerationParams(max_new_tokens=6, logprobs=2, seed=1)), tenant="a")
    first, again = engine.submit(job), None
    wanted = first.result()
    again = engine.submit(job)
    assert again.result() == wanted
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, 44)
    other = engine.submit(Job(job.request, tenant="b"))
    assert other.result() == wanted and other.usage.cached_tokens == 0
    longer = engine.submit(Job(Request([*prompt[:21], 7, 7], job.request.params), tenant="a"))
    assert longer.result() == expected(lm, [longer.job.request])[0] and longer.usage.cached_tokens == 20
    stats = engine.stats()
    assert stats.prefix_hits == 64 and stats.blocks_used == 0 and stats.blocks_cached


def test_a_conversation_finds_its_own_answers(models: Any, engines: Any) -> None:
    engine = engines(models("decoder"))
    prompt = list(range(3, 20))
    answer = engine.submit(Job(Request(prompt, GenerationParams(max_new_tokens=16)))).result()[0].ids
    following = engine.submit(Job(Request([*prompt, *answer, 5], GenerationParams(max_new_tokens=1))))
    following.result()
    assert following.usage.cached_tokens == 28


def test_outputs_of_one_prompt_share_it(models: Any, engines: Any) -> None:
    lm = models("decoder")
    engine = engines(lm, prefix_cache=False, token_budget=8, prompt_budget=16)
    served(engine, [Request(list(range(3, 43)), GenerationParams(max_new_tokens=1, temperature=1.0, n=8))])
    assert engine.stats().tokens_read == 40


def test_an_echo_is_what_the_model_thinks_of_the_prompt(models: Any, engines: Any) -> None:
    lm = models("decoder")
    for config in ({}, HARD):
        engine = engines(lm, **config)
        for params in ({"max_new_tokens": 3}, {"max_new_tokens": 0}, {"penalty_alpha": 0.6, "top_k": 3}, {"n": 2}):
            own = GenerationParams(logprobs=2, seed=1).override({"max_new_tokens": 3, **params})
            request = Request(list(range(3, 30)), own)
            noise = [engine.submit(Job(request_of(lm, seed))) for seed in range(4)]
            handle = engine.submit(Job(request, echo=True))
            assert [one.ids for one in handle.result()] == [one.ids for one in expected(lm, [request])[0]]
            logits = lm.model(torch.tensor([request.prompt]))[0].log_softmax(-1).detach()
            assert [one.token for one in handle.prompt] == request.prompt and handle.prompt[0].logprob is None
            for place, one in enumerate(handle.prompt[1:]):
                assert one.logprob == pytest.approx(float(logits[place, one.token]), abs=1e-4)
                assert [token for token, _ in one.top] == logits[place].topk(2).indices.tolist()
            for other in noise:
                other.result()


def test_models_without_a_program_read_in_turn(models: Any, engines: Any) -> None:
    lm = models("decoder")
    slow = LanguageModel(lm.model, lm.tokenizer, runtime="torch")
    engine = engines(slow)
    assert "in turn: runtime=torch" in engine.notes[1]
    requests = [request_of(lm, place, **STRATEGIES[name]) for place, name in enumerate(SOME)]
    assert_same(served(engine, requests), expected(slow, requests))
