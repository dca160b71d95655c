"""An engine whose model two processes share out: it writes what one process writes, and says who has gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError, TranspectError
from transpect.core import (
    AttentionConfig,
    Full,
    ModelConfig,
    Pooled,
    SequenceClass,
    StackConfig,
    Transformer,
)
from transpect.core.positions import Rope
from transpect.decode import Request, Result
from transpect.lm import LanguageModel, load
from transpect.serve import Engine, EngineConfig, EngineDead, Job
from transpect.serve.http.models import ModelSpec
from transpect.serve.tensor import Partners, TensorParallelError, shared
from transpect.serve.tensor.orders import packed, read, tensor, written
from transpect.text import train_tokenizer

STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"temperature": 1.0, "top_p": 0.9, "n": 3},
    "beams": {"num_beams": 3, "n": 2},
    "contrastive": {"penalty_alpha": 0.5, "top_k": 4},
    "look-up": {"prompt_lookup_num_tokens": 3, "n": 2},
    "early exit": {"early_exit": 1, "temperature": 1.0},
    "guided beams": {"guidance_scale": 1.5, "num_beams": 2},
    "logprobs": {"logprobs": 3},
}
PROMPTS = ["fox", "The quick brown fox jumps.", "a", "dog and cat " * 4]


def test_orders_say_what_was_meant() -> None:
    pairs = [("a", "b"), "小猫", ("c",)]
    given = {"inputs": pairs, "options": {"truncate": True, "n": None}, "tokens": torch.tensor([[1, 2]])}
    found = read(written("call", 3, **given))
    assert found == {"order": "call", "number": 3, **given, "tokens": [[1, 2]]}
    assert torch.equal(tensor(packed(torch.tensor([True, False]))), torch.tensor([True, False]))  # type: ignore[arg-type]
    assert tensor(None) is None


@pytest.mark.parametrize("other", [{"quant": "int8"}, {"runtime": "program"}, {"device": "cuda"}], ids=str)
def test_what_does_not_go_with_parts_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="share out"):
        ModelSpec("tiny", tensor_parallel=2, **other)
    ModelSpec("tiny", **other)


@pytest.fixture(scope="module")
def saved(models: Callable[[str], LanguageModel], tmp_path_factory: Any) -> Callable[[str], Path]:
    """The directory of a model."""

    def of(shape: str) -> Path:
        folder: Path = tmp_path_factory.mktemp("tensor") / shape
        models(shape).save(folder)
        return folder

    return of


@pytest.fixture(scope="module", params=["decoder", "prefix", "encoder-decoder"])
def pair(request: Any, saved: Callable[[str], Path]) -> Iterator[tuple[LanguageModel, Engine, Partners]]:
    """A model in one process, and an engine of two."""
    path = str(saved(request.param))
    lm = load(path, "cpu", runtime="torch")
    partners = shared(lm, path, None, 2)
    engine = Engine(lm, EngineConfig(blocks=200, block=4, max_rows=16), partners)
    yield load(path, "cpu", runtime="torch"), engine, partners
    engine.stop()
    assert not partners.pids


def results(engine: Engine, requests: list[Request]) -> list[list[Result]]:
    """What an engine writes, all of it at a time."""
    return [handle.result() for handle in [engine.submit(Job(own)) for own in requests]]


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_two_write_what_one_writes(name: str, pair: tuple[LanguageModel, Engine, Partners]) -> None:
    alone, engine, _ = pair
    params = {"max_new_tokens": 24, "ignore_eos": True, "seed": 3, **STRATEGIES[name]}
    requests = alone.requests(PROMPTS, **params)
    wanted = alone._results(requests, batch_size=1, memory=None, cache=None)
    found = [own for several in results(engine, requests) for own in several]
    for own, other in zip(found, wanted, strict=True):
        assert own.ids == other.ids
        assert own.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("ability", ["embed", "classify"])
def test_two_read_as_one(ability: str, tmp_path: Path) -> None:
    head = Pooled() if ability == "embed" else SequenceClass(n_classes=3)
    tower = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), positions=Rope(), visibility=Full())
    letters = train_tokenizer("char", ["abc def"])
    config = ModelConfig(letters.vocab_size, d_model=16, context_length=32, encoder=tower, decoder=None, head=head)
    LanguageModel(Transformer(config, seed=1).eval(), letters).save(tmp_path / "reader")
    path = str(tmp_path / "reader")
    alone, lm = load(path, "cpu", runtime="torch"), load(path, "cpu", runtime="torch")
    engine = Engine(lm, EngineConfig(), shared(lm, path, None, 2))
    try:
        inputs: list[Any] = ["abc", "fed ab", "a"] if ability == "embed" else ["abc", ("fed", "ab"), "a"]
        futures = [engine.call(ability, [own]) for own in inputs] + [engine.call(ability, ["a" * 99])]
        for future, own in zip(futures, inputs, strict=False):
            found, wanted = future.result(60), getattr(alone, ability)([own])
            if ability == "embed":
                torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
            else:
                assert found[0].probabilities == pytest.approx(wanted[0].probabilities, abs=1e-5)
        with pytest.raises(TranspectError):
            futures[-1].result(60)
        assert len(engine.call(ability, inputs).result(60)) == 3, "what one has done wrong is no matter to others"
    finally:
        engine.stop()


@pytest.mark.slow
def test_one_that_is_killed_is_named_and_the_engine_begins_anew(saved: Callable[[str], Path]) -> None:
    path = str(saved("decoder"))
    alone, lm = load(path, "cpu", runtime="torch"), load(path, "cpu", runtime="torch")
    partners = shared(lm, path, None, 2)
    engine = Engine(lm, EngineConfig(blocks=200, block=4), partners)
    own = alone.requests("fox", max_new_tokens=90, ignore_eos=True)[0]
    try:
        wanted = alone._results([own], batch_size=1, memory=None, cache=None)[0].ids
        for idle in (False, True):
            events = iter(engine.submit(Job(own)))
            if idle:
                assert len(list(events)) >= 90
            else:
                next(events)
            os.kill(partners.pids[0], signal.SIGKILL)
            if not idle:
                with pytest.raises(EngineDead, match=r"process 1 \(signal 9\) of the 2"):
                    list(events)
            end = time.monotonic() + 60
            while engine.state != "dead":
                assert time.monotonic() < end
                time.sleep(0.01)
            with pytest.raises(EngineDead):
                engine.submit(Job(own))
            engine.restart()
            assert results(engine, [own])[0][0].ids == wanted
    finally:
        engine.stop()
    assert issubclass(TensorParallelError, EngineDead)
