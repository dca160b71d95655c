"""What a model that reads is asked: a batch at a time, so that nobody waits until all of another's texts are read."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import Any

import pytest
import torch

from transpect.base.errors import ContextLengthError
from transpect.core import AttentionConfig, Full, ModelConfig, Pooled, SequenceClass, StackConfig, Transformer
from transpect.lm import LanguageModel
from transpect.serve import EngineDead
from transpect.serve.calls import Call, answer, batched

WORDS = ["fox", "the lazy dog", "a", "over and over again", "quick"]


@pytest.fixture(params=["embed", "classify"])
def reader(request: Any, tiny: LanguageModel) -> tuple[str, LanguageModel]:
    """An ability, and a model that has it."""
    head = Pooled() if request.param == "embed" else SequenceClass(n_classes=3)
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), visibility=Full())
    model = Transformer(ModelConfig(61, 16, 40, encoder=stack, decoder=None, head=head), seed=1).eval()
    return request.param, LanguageModel(model, tiny.tokenizer)


def told(name: str, found: Any) -> torch.Tensor:
    """Answers as numbers, in their order."""
    if name == "embed":
        return torch.as_tensor(found)
    return torch.tensor([[own.probabilities[label] for label in sorted(own.probabilities)] for own in found])


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_parts_of_calls_make_what_each_gets_alone(batch: int, reader: Any) -> None:
    name, lm = reader
    inputs: list[Any] = [WORDS, "fox", [], WORDS[::-1], ["x" * 99, "a"], ["a"]]
    calls = [Call(name, own, {}) for own in inputs]
    left, turns = calls, 0
    while left:
        answer(lm, batched(left), batch)
        left, turns = [call for call in left if not call.over], turns + 1
    for call, own in zip(calls, inputs, strict=True):
        if own == ["x" * 99, "a"]:
            assert isinstance(call.future.exception(), ContextLengthError)
        else:
            found, wanted = call.future.result(), getattr(lm, name)(own)
            assert len(found) == len(wanted)
            if own:
                assert torch.allclose(told(name, found), told(name, wanted), atol=1e-6)
    assert turns >= 12 // batch


def test_one_that_has_thousands_lets_others_go_on(reader: Any) -> None:
    name, lm = reader
    many, few = Call(name, WORDS * 40, {}), Call(name, WORDS, {})
    for _ in range(2):
        answer(lm, batched([many, few]), 8)
    assert few.future.done() and not many.future.done()
    assert torch.allclose(told(name, few.future.result()), told(name, getattr(lm, name)(WORDS)), atol=1e-6)


@pytest.fixture
def held(reader: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Semaphore, list[int]]:
    """Batches wait for the one; how many texts each had is in the other."""
    allowed, read = threading.Semaphore(0), list[int]()
    name = reader[0]
    ability = getattr(LanguageModel, name)

    def waiting(self: LanguageModel, texts: Any, **options: Any) -> Any:
        assert allowed.acquire(timeout=20)
        read.append(len(texts))
        return ability(self, texts, **options)

    monkeypatch.setattr(LanguageModel, name, waiting)
    return allowed, read


def test_what_nobody_waits_for_is_not_read_to_its_end(reader: Any, held: Any, engines: Any) -> None:
    name, lm = reader
    allowed, read = held
    engine = engines(lm, batch_size=4)
    gone: Future[Any] = engine.call(name, WORDS * 40)
    allowed.release(3)
    while len(read) < 3:
        pass
    assert gone.cancel()
    allowed.release(50)
    kept = engine.call(name, WORDS)
    assert len(kept.result(20)) == len(WORDS)
    assert engine.drain(20) and sum(read) <= 3 * 4 + 4 + len(WORDS)


def test_an_end_is_an_error_for_those_who_wait(reader: Any, held: Any, engines: Any) -> None:
    name, lm = reader
    allowed, read = held
    engine = engines(lm, batch_size=4)
    futures = [engine.call(name, WORDS * 40) for _ in range(3)]
    assert futures[1].cancel()
    stopping = threading.Thread(target=engine.stop)
    stopping.start()
    while engine.state != "dead":
        pass
    allowed.release(1)
    stopping.join()
    wait(futures, 20)
    assert all(isinstance(own.exception(), EngineDead) for own in (futures[0], futures[2])) and len(read) <= 1
