"""Generation that sees only the last tokens: exact where they are all, a window where they are not, and without end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError, ContextLengthError
from transpect.core import Transformer, Window
from transpect.decode import GenerationParams, Request, generate

POSITIONS = ("none", "sinusoidal", "rope", "alibi", "t5", "transformer-xl")


def mixed(count: int) -> list[GenerationParams]:
    """Greedy and sampled, of different lengths."""
    return [GenerationParams(3 + 2 * i, temperature=i % 2, seed=i) for i in range(count)]


def same(results: list[Any], expected: list[Any]) -> None:
    assert [result.ids for result in results] == [result.ids for result in expected]
    for one, other in zip(results, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-9)


def other(model: Transformer, **changes: Any) -> Transformer:
    """The same weights under another config."""
    twin = Transformer(replace(model.config, **changes)).double().eval()
    twin.load_state_dict(model.state_dict())
    return twin


@pytest.mark.parametrize("shape", ["mha", "gqa", "window"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_memory_as_long_as_the_past_changes_nothing(positions: str, shape: str, tools: Any) -> None:
    """Nor does a context that ends before."""
    model = tools.model(tools.Case(positions, shape))
    requests = tools.requests(model, mixed(5))
    expected = generate(model, requests)
    short = other(model, context_length=4)
    for chunk in (None, 1, 3):
        same(generate(short, requests, memory=100, prefill_chunk=chunk), expected)
        same(generate(short, requests, memory=100, prefill_chunk=chunk, batch_size=2), expected)
    with pytest.raises(ContextLengthError):
        generate(short, requests)


@pytest.mark.parametrize("memory", [0, 1, 4])
@pytest.mark.parametrize("positions", POSITIONS)
def test_token_by_token_it_is_a_window(positions: str, memory: int, tools: Any) -> None:
    model = tools.model(tools.Case(positions))
    requests = tools.requests(model, mixed(5))
    ruled = other(model, decoder=replace(model.config.last, visibility=Window(memory + 1)))
    same(generate(model, requests, memory=memory, prefill_chunk=1), generate(ruled, requests))


@pytest.mark.parametrize("chunk", [None, 2, 3])
def test_no_row_feels_another(chunk: int | None, tools: Any) -> None:
    """Also where prompts of other lengths are read in pieces beside it."""
    model = tools.model(tools.Case("transformer-xl"), context_length=4)
    requests = [Request([1 + (7 * i + j) % 30 for j in range(1 + 3 * i)], params) for i, params in enumerate(mixed(6))]
    alone = [generate(model, [request], memory=2, prefill_chunk=chunk)[0] for request in requests]
    same(generate(model, requests, memory=2, prefill_chunk=chunk), alone)
    assert [result.ids for result in alone] != [
        result.ids for result in generate(model, requests, memory=50, prefill_chunk=chunk)
    ]


def test_what_can_not_go_on_is_refused_before_anything_is_read(tools: Any) -> None:
    request = Request([1, 2], GenerationParams(3))
    for positions in ("learned", "rope-dynamic"):
        with pytest.raises(ConfigError, match="with a memory"):
            generate(tools.model(tools.Case(positions)), [request], memory=4)
    translating = tools.model(tools.Case("rope", "encoder-decoder"))
    with pytest.raises(ConfigError, match="decoder alone"):
        generate(translating, [Request([1], GenerationParams(3), [1, 2])], memory=4)
    with pytest.raises(ConfigError, match="memory must be at least 0"):
        generate(tools.model(tools.Case("rope")), [request], memory=-1)


def test_what_is_kept_does_not_grow(tools: Any) -> None:
    from transpect.decode import Stepper

    model = tools.model(tools.Case("transformer-xl"), context_length=8)
    steps = Stepper(model, [[1, 2, 3], list(range(20))], horizons=[90, 90], memory=5)
    steps.prefill()
    for token in range(30):
        steps.advance(torch.tensor([token, token]))
        held = [tensor for store in steps._cache._stores for tensor in store.values()]
        assert {tensor.shape[2] for tensor in held} == {5}
        assert {tensor.untyped_storage().nbytes() for tensor in held} == {2 * 16 * 5 * 8}
