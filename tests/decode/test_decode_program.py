"""Requests by a decode program get what they get by PyTorch, whatever the strategy; and who is given a program."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.cache import CacheKind, Int8, Paged, Sinks, Sliding, Static
from transpect.decode import GenerationParams, Result, generate
from transpect.decode import program_steps as steps
from transpect.decode.stepper import Stepper
from transpect.lm import LanguageModel

STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"temperature": 1.0, "top_p": 0.9, "n": 2},
    "penalties": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    "beams": {"num_beams": 3, "n": 2},
    "contrastive": {"penalty_alpha": 0.5, "top_k": 4},
    "best of": {"best_of": 3, "temperature": 1.0},
    "look-up": {"prompt_lookup_num_tokens": 3},
    "early exit": {"early_exit": 1, "temperature": 1.0},
    "guidance": {"guidance_scale": 1.5},
}


def both(tools: Any, case: Any, **params: Any) -> tuple[list[Result], list[Result]]:
    model = tools.model(case, torch.float32)
    own = [GenerationParams(max_new_tokens=7, seed=i).override(params) for i in range(4)]
    requests = tools.requests(model, own)
    return generate(model, requests, runtime="program", batch_size=6), generate(model, requests, batch_size=6)


@pytest.mark.parametrize("shape", ["gqa", "window", "encoder-decoder"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_program_writes_what_the_model_writes(tools: Any, strategy: str, shape: str) -> None:
    found, expected = both(tools, tools.Case("alibi", shape), **STRATEGIES[strategy])
    assert [result.ids for result in found] == [result.ids for result in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        if strategy in ("look-up", "early exit"):  # others guess where a program has rows to spare
            assert (one.drafted, one.accepted) == (other.drafted, other.accepted)


KINDS = [Static(40), Paged(1), Paged(3), Sliding(4), Sliding(0), Sliding(30)]


SOME = ("greedy", "sampling", "beams", "contrastive", "guidance", "early exit")
CASES = [(how, kind) for how in SOME for kind in KINDS if how != "early exit" or not isinstance(kind, Sliding)]


@pytest.mark.parametrize(("strategy", "kind"), CASES, ids=str)
def test_whatever_the_cache(tools: Any, strategy: str, kind: CacheKind) -> None:
    model = tools.model(tools.Case("rope", "gqa"), torch.float32)
    own = [GenerationParams(max_new_tokens=9, seed=i).override(STRATEGIES[strategy]) for i in range(3)]
    for chunk in (None, 2):
        options = {"cache": kind, "prefill_chunk": chunk, "batch_size": 6}
        requests = tools.requests(model, own)
        found, expected = (generate(model, requests, runtime=way, **options) for way in ("program", "torch"))
        assert [result.ids for result in found] == [result.ids for result in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_program_that_is_asked_for_is_there_or_refused(tools: Any) -> None:
    for positions, what in (("rope-dynamic", "dynamic"), ("transformer-xl", "distance")):
        model = tools.model(tools.Case(positions, "mha"), torch.float32)
        with pytest.raises(ConfigError, match=what):
            generate(model, tools.requests(model, [GenerationParams(2)]), runtime="program")
    model = tools.model(dtype=torch.float32)
    requests = tools.requests(model, [GenerationParams(2)])
    for cache in (Sinks(1, 4), Int8(group=2)):
        with pytest.raises(ConfigError, match=cache.kind):
            generate(model, requests, runtime="program", cache=cache)
    with pytest.raises(ConfigError, match="auto, torch, program"):
        generate(model, requests, runtime="fast")


def test_an_unknown_runtime_is_refused_when_a_model_is_made(tools: Any, letters: Any) -> None:
    with pytest.raises(ConfigError, match="auto, torch, program"):
        LanguageModel(tools.model(), letters, runtime="numba")


def _by_program(runtime: Any, model: Any, kind: Any) -> bool:
    with steps.steps_by(runtime, Stepper(model, [[1]], horizons=[2], cache=kind), 2) as chosen:
        return isinstance(chosen, steps.ProgramSteps)


def test_auto_takes_a_program_for_large_models_that_have_one(tools: Any, monkeypatch: Any) -> None:
    dense = steps.Dense()
    model, other = tools.model(dtype=torch.float32), tools.model(tools.Case("transformer-xl"), torch.float32)
    assert not _by_program("auto", model, dense)
    monkeypatch.setattr(steps, "LARGE_ENOUGH", 1)
    assert _by_program("auto", model, dense)
    for kind in (Static(20), Paged(), Sliding(3)):
        assert _by_program("auto", model, kind)
    for kind in (Int8(group=2), Sinks(1, 4)):
        assert not _by_program("auto", model, kind)
    assert not _by_program("auto", other, dense)
    assert not _by_program("auto", tools.model(), dense)  # float64
    assert not _by_program("torch", model, dense)


def test_auto_looks_at_the_model_as_it_is_now(tools: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(steps, "LARGE_ENOUGH", 1)
    model = tools.model(dtype=torch.float32)
    requests = tools.requests(model, [GenerationParams(3)])
    assert _by_program("auto", model, steps.Dense())
    expected = generate(model, requests)
    assert [own.ids for own in generate(model.double(), requests, runtime="auto")] == [own.ids for own in expected]
    assert not _by_program("auto", model, steps.Dense())
    assert _by_program("auto", model.float(), steps.Dense())
