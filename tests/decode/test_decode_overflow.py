"""What becomes of tokens that the context has no room for: a stated policy, and an error where none is stated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError, ContextLengthError, GenerationError
from transpect.cache import Dense, Sinks, Sliding
from transpect.core import Transformer
from transpect.decode import Defaults, GenerationParams, Request, generate, stream

RELATIVE = ("none", "rope", "alibi", "t5", "transformer-xl")


def test_what_is_asked_for_and_does_not_fit_is_an_error(tools: Any) -> None:
    """At the call, with the numbers and what can be done."""
    model = tools.model(tools.Case("rope"), context_length=8)
    fitting = Request([1, 2, 3], GenerationParams(5))
    assert len(generate(model, [fitting])[0].ids) == 5
    says = (
        r"together must fit the model's context of 8 tokens \(got '3 and max_new_tokens=6'\)"
        r".*at most 5.*overflow=stop.*overflow=sinks"
    )
    with pytest.raises(ContextLengthError, match=says):
        stream(model, [fitting, Request([1, 2, 3], GenerationParams(6))])


def test_what_nobody_asked_for_is_what_fits(tools: Any) -> None:
    model = tools.model(tools.Case("rope"), context_length=8)
    assert len(generate(model, [Request([1, 2])])[0].ids) == 6
    for entries in ({}, {"max_new_tokens": 100}, {"max_length": 100}):
        defaults = Defaults.read(entries)
        assert len(generate(model, [Request([1, 2], defaults.params_for({}, 2))])[0].ids) == 6
        assert defaults.params_for({"max_new_tokens": 3}, 2).overflow == "error"
        assert defaults.params_for({"overflow": "sinks"}, 2).overflow == "sinks"


def test_stop_ends_where_the_context_does(tools: Any) -> None:
    model = tools.model(tools.Case("learned"), context_length=8)
    (result,) = generate(model, [Request([1, 2, 3], GenerationParams(60, min_new_tokens=20, overflow="stop"))])
    assert (len(result.ids), result.finish_reason) == (5, "length")


def test_a_policy_has_a_name() -> None:
    with pytest.raises(GenerationError, match="overflow must be one of error, stop, sinks"):
        GenerationParams(overflow="slide")  # type: ignore[arg-type]


@torch.no_grad()
def one_layer(model: Transformer, request: Request, ids: tuple[int, ...], n_sinks: int, window: int) -> list[float]:
    """The log-probability of each token, by a pass over what a step has in sight."""
    past, found = list(request.prompt), []
    for token in ids:
        seen = past if len(past) <= n_sinks + window else past[:n_sinks] + past[-window:]
        found.append(float(model(torch.tensor([seen]))[0, -1].log_softmax(-1)[token]))
        past.append(token)
    return found


def asking(overflow: str, count: int = 3) -> list[Request]:
    """Prompts that fit a context of 10, that fill it and that exceed it; greedy and sampled."""
    params = [GenerationParams(16, temperature=i % 2, seed=i, overflow=overflow) for i in range(count)]  # type: ignore[arg-type]
    prompts = [[(7 * i + j) % 31 for j in range(length)] for i, length in enumerate((2, 10, 17))]
    return [Request(prompt, own) for prompt, own in zip(prompts, params, strict=True)]


@pytest.mark.parametrize("positions", RELATIVE)
def test_sinks_go_on_and_no_row_feels_another(positions: str, tools: Any) -> None:
    """Also where a row beside them stops."""
    model = tools.model(tools.Case(positions), context_length=10)
    requests = [*asking("sinks"), Request([5], GenerationParams(30, overflow="stop"))]
    together = generate(model, requests)
    assert [len(result.ids) for result in together] == [16, 16, 16, 9]
    for request, result in zip(requests, together, strict=True):
        (alone,) = generate(model, [request])
        assert result.ids == alone.ids
        assert result.logprobs == pytest.approx(alone.logprobs, abs=1e-9)


@pytest.mark.parametrize(("kind", "seen"), [(None, (4, 6)), (Sinks(2, 5), (2, 6)), (Sinks(0, 9), (0, 10))], ids=str)
@pytest.mark.parametrize("positions", RELATIVE)
def test_in_one_layer_each_token_comes_of_a_pass_over_what_is_in_sight(
    positions: str, kind: Sinks | None, seen: tuple[int, int], tools: Any
) -> None:
    deep = tools.model(tools.Case(positions), context_length=10)
    model = Transformer(replace(deep.config, decoder=replace(deep.config.last, n_layers=1))).double().eval()
    model.load_state_dict(deep.state_dict(), strict=False)
    requests = asking("sinks" if kind is None else "error")
    for request, result in zip(requests, generate(model, requests, cache=kind), strict=True):
        assert result.logprobs == pytest.approx(one_layer(model, request, result.ids, *seen), abs=1e-9)


@pytest.mark.parametrize("positions", RELATIVE)
def test_before_the_context_ends_sinks_change_nothing(positions: str, tools: Any) -> None:
    model = tools.model(tools.Case(positions))
    requests = asking("sinks")
    expected = generate(model, [replace(r, params=replace(r.params, overflow="error")) for r in requests])
    for chunk in (None, 3):
        found = generate(model, requests, prefill_chunk=chunk)
        assert [result.ids for result in found] == [result.ids for result in expected]


def test_an_encoder_decoder_goes_on_too(tools: Any) -> None:
    model = tools.model(tools.Case("t5", "encoder-decoder"), context_length=8)
    params = GenerationParams(20, overflow="sinks")
    requests = [Request([1], params, [3, 4, 5]), Request([1, 2], params, [6] * 8)]
    found = generate(model, requests)
    assert [result.ids for result in found] == [generate(model, [request])[0].ids for request in requests]
    with pytest.raises(ContextLengthError, match="source must fit"):
        generate(model, [Request([1], params, [6] * 9)])


def test_what_can_not_go_on_so_is_refused_before_anything_is_read(tools: Any) -> None:
    request = Request([1, 2], GenerationParams(3, overflow="sinks"))
    for case, says in (
        (tools.Case("learned"), "positions learned"),
        (tools.Case("sinusoidal"), "positions sinusoidal"),
        (tools.Case("rope-dynamic"), "positions rope"),
        (tools.Case("rope", "prefix"), "visibility prefix_lm"),
    ):
        with pytest.raises(ConfigError, match=f"sinks follow the window.*{says}"):
            stream(tools.model(case), [request])
    with pytest.raises(ConfigError, match="overflow=sinks has a cache of its own"):
        stream(tools.model(), [request], cache=Sliding(4))
    with pytest.raises(ConfigError, match="a memory is a kind of cache"):
        stream(tools.model(), [request], cache=Dense(), memory=4)
