"""Each way to search with a cache and in batches, against itself where every row is read alone, whole and anew.

Over position schemes × shapes of model: the reordering of beams must reach all that is remembered.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.cache import CacheKind, Int8, Sinks, Sliding, Static
from transpect.decode import (
    BeamSearch,
    BestOf,
    ContrastiveSearch,
    DiverseBeamSearch,
    GenerationParams,
    Guided,
    Request,
    Result,
    Row,
    Strategy,
    decode,
    generate,
)
from transpect.decode.guidance import without
from transpect.decode.request import collect

POSITIONS = ("none", "sinusoidal", "learned", "rope", "rope-dynamic", "alibi", "t5", "transformer-xl")
SHAPES = ("mha", "gqa", "window", "packed", "prefix", "encoder-decoder")
ENDS = tuple(range(0, 31, 6))
STRATEGIES: list[tuple[Strategy, dict[str, Any]]] = [
    (BeamSearch(3, early_stopping="never"), {"n": 3}),
    (BeamSearch(4, length_penalty=-0.5, early_stopping=True), {"n": 2, "temperature": 1.5, "top_k": 9}),
    (DiverseBeamSearch(2, num_beams=4, diversity_penalty=1.0), {"n": 4}),
    (ContrastiveSearch(0.7), {"top_k": 4}),
    (BestOf(3), {"n": 2, "temperature": 1.0}),
]


def varied(strategy: Strategy, **common: Any) -> list[GenerationParams]:
    """Requests that differ in what they may."""
    common = {"strategy": strategy, "seed": 3, **common}
    return [
        GenerationParams(5, eos_ids=ENDS, **common),
        GenerationParams(2, **common),
        GenerationParams(6, eos_ids=ENDS[1:3], min_new_tokens=3, repetition_penalty=1.4, **common),
    ]


def anew(tools: Any, model: Any, requests: list[Request]) -> list[Result]:
    """Each request by itself."""
    found: list[Result] = []
    for request in requests:
        steps = tools.anew(model, [request, *without([request])])
        rows = [Row(0, request)]
        found += collect(
            decode(Guided(steps, [request.params.guidance_scale]) if request.params.guided else steps, rows)
        )
    return found


def agree(found: list[Result], expected: list[Result]) -> None:
    assert [(result.ids, result.choice, result.finish_reason, result.seed) for result in found] == [
        (result.ids, result.choice, result.finish_reason, result.seed) for result in expected
    ]
    for mine, other in zip(found, expected, strict=True):
        assert mine.logprobs == pytest.approx(other.logprobs, abs=1e-8)
        assert mine.score == pytest.approx(other.score, abs=1e-8)


@pytest.mark.parametrize(("positions", "shape"), list(itertools.product(POSITIONS, SHAPES)))
def test_beams_of_every_model(positions: str, shape: str, tools: Any) -> None:
    model = tools.model(tools.Case(positions, shape))
    requests = tools.requests(model, varied(BeamSearch(3, length_penalty=0.8), n=2))
    agree(generate(model, requests), anew(tools, model, requests))


@pytest.mark.parametrize("shape", ["window", "prefix", "encoder-decoder"])
@pytest.mark.parametrize(("strategy", "options"), STRATEGIES, ids=lambda x: type(x).__name__)
def test_every_search(strategy: Strategy, options: dict[str, Any], shape: str, tools: Any) -> None:
    """Alone, together, in small batches, with prompts in pieces."""
    model = tools.model(tools.Case("rope-dynamic", shape))
    requests = tools.requests(model, varied(strategy, **options))
    expected = anew(tools, model, requests)
    agree(generate(model, requests), expected)
    agree(generate(model, requests, batch_size=1, prefill_chunk=2), expected)
    agree(generate(model, requests[::-1])[-len(expected) // 3 :], expected[: len(expected) // 3])
    assert len({token for result in expected for token in result.ids}) > 3


@pytest.mark.parametrize("kind", [Static(40), Sliding(60), Sinks(2, 5), Int8(4)], ids=lambda kind: kind.kind)
def test_beams_with_every_cache(kind: CacheKind, tools: Any) -> None:
    """Caches that keep everything give what all others do; what a request gets of the rest is what it gets alone."""
    model = tools.model(tools.Case("rope", "gqa"))
    requests = tools.requests(model, varied(BeamSearch(3, early_stopping="never"), n=3))
    found = generate(model, requests, cache=kind)
    alone = [result for request in requests for result in generate(model, [request], cache=kind)]
    agree(found, generate(model, requests) if isinstance(kind, Static | Sliding) else alone)


@pytest.mark.parametrize("shape", ["gqa", "encoder-decoder"])
@pytest.mark.parametrize(("strategy", "options"), STRATEGIES, ids=lambda x: type(x).__name__)
def test_every_search_with_guidance(strategy: Strategy, options: dict[str, Any], shape: str, tools: Any) -> None:
    """Some requests guided, by scales and negatives of their own, and some not."""
    model = tools.model(tools.Case("rope", shape))
    first, second, third = tools.requests(model, varied(strategy, **options))
    requests = [
        replace(first, params=replace(first.params, guidance_scale=1.7), negative=[4, 5, 6, 7]),
        second,
        replace(third, params=replace(third.params, guidance_scale=0.4)),
    ]
    expected = anew(tools, model, requests)
    agree(generate(model, requests), expected)
    plain = generate(model, [first, second, third])
    assert [result.ids for result in plain] != [result.ids for result in expected]


def test_without_a_negative_the_last_token_is_what_is_read(tools: Any) -> None:
    for shape, name in (("mha", "prompt"), ("encoder-decoder", "source")):
        model = tools.model(tools.Case("rope", shape))
        requests = tools.requests(model, [GenerationParams(5, guidance_scale=2.0)] * 3)
        spelled = [replace(request, negative=list(getattr(request, name))[-1:]) for request in requests]
        assert [r.ids for r in generate(model, requests)] == [r.ids for r in generate(model, spelled)]


def test_guidance_by_its_formula(tools: Any) -> None:
    model = tools.model()
    ids, negative, scale = [3, 9, 4], [7, 7, 1, 2], 2.5
    (found,) = generate(model, [Request(ids, GenerationParams(6, guidance_scale=scale), negative=negative)])
    new: list[int] = []
    for token, logprob in zip(found.ids, found.logprobs, strict=True):
        with torch.no_grad():
            c, u = (model(torch.tensor([[*own, *new]]))[0, -1].log_softmax(-1) for own in (ids, negative))
        guided = u + scale * (c - u)
        assert token == int(guided.argmax())
        assert logprob == pytest.approx(float(guided.log_softmax(-1)[token]), abs=1e-8)
        new.append(token)
