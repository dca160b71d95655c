"""Guesses that fill a pass change the time and nothing else: the same tokens, texts, and bits of log-probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from transpect.cache import CacheKind, Paged, Sliding, Static
from transpect.core import Transformer
from transpect.decode import Event, GenerationParams, Request, Result, generate, stream
from transpect.decode import program_steps as steps
from transpect.decode.stepper import Stepper
from transpect.quant import Int4, Int8, Plan, quantise_model

POSITIONS = ("none", "sinusoidal", "learned", "rope", "alibi", "t5")
SHAPES = ("mha", "gqa", "window", "packed", "encoder-decoder")
PARAMS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {},
    "ends": {"eos_ids": (3, 5, 7, 11, 13), "min_new_tokens": 4},
    "drawn": {"temperature": 0.3, "top_p": 0.9},
    "hot": {"temperature": 1.2, "top_k": 3, "n": 2},
    "penalties": {"repetition_penalty": 1.1, "presence_penalty": -0.5, "logit_bias": ((4, 3.0), (9, 3.0))},
    "alternatives": {"logprobs": 3},
    "guided": {"guidance_scale": 1.5},
}
NEVER = {"prompt_lookup_num_tokens": 0}


def asking(model: Transformer, count: int, **params: Any) -> list[Request]:
    """Prompts that go round, so that there is something to guess by."""
    own = GenerationParams(max_new_tokens=24).override(params)
    source = [5, 9, 2, 5, 9, 2, 4] if model.config.encoder else None
    return [Request([1 + i, 2, 3, 4] * 3, replace(own, seed=i), source) for i in range(count)]


def without(requests: Sequence[Request]) -> list[Request]:
    return [replace(request, params=request.params.override(NEVER)) for request in requests]


def told(result: Result) -> dict[str, Any]:
    """All of a result but how many tokens were guessed."""
    return {f.name: getattr(result, f.name) for f in fields(result) if f.name not in ("drafted", "accepted")}


def guessed(model: Transformer, requests: Sequence[Request], **options: Any) -> tuple[int, int]:
    """How many tokens were guessed, and how many stayed, of outputs that are the same as without guesses."""
    found = generate(model, requests, runtime="program", **options)
    expected = generate(model, without(requests), runtime="program", **options)
    assert list(map(told, found)) == list(map(told, expected))
    assert not any(result.drafted for result in expected)
    return sum(result.drafted for result in found), sum(result.accepted for result in found)


@pytest.mark.parametrize(("positions", "shape"), list(itertools.product(POSITIONS, SHAPES)))
def test_every_bit_is_as_without(positions: str, shape: str, tools: Any) -> None:
    model = tools.model(tools.Case(positions, shape), torch.float32)
    drafted, accepted = guessed(model, [asking(model, 1, **own)[0] for own in PARAMS.values()], batch_size=1)
    assert 0 < accepted < drafted


@pytest.mark.parametrize("kind", [Static(40), Paged(3), Sliding(30)], ids=str)
def test_whatever_the_cache(kind: CacheKind, tools: Any) -> None:
    model = tools.model(tools.Case("rope", "gqa"), torch.float32)
    drafted, _ = guessed(model, asking(model, 3), cache=kind, batch_size=1)
    assert bool(drafted) != isinstance(kind, Sliding)  # a memory of the last tokens takes nothing back


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_weights_in_a_format(name: str, tools: Any) -> None:
    """Those of 4 bits are not read at the price of one row."""
    config = replace(tools.model(tools.Case("rope", "gqa")).config, d_model=64)
    model = Transformer(config, seed=1).eval()
    quantise_model(model, Plan(Int8() if name == "int8" else Int4(32)))
    drafted, _ = guessed(model, asking(model, 2), batch_size=1)
    assert bool(drafted) == (name == "int8")


def test_rows_guess_while_there_are_few(tools: Any) -> None:
    """A pass of three rows has none to spare; what is left of them later has."""
    model = tools.model(tools.Case("rope", "gqa"), torch.float32)
    assert guessed(model, asking(model, 3)) == (0, 0)
    requests = asking(model, 3)
    cut = [
        replace(own, params=replace(own.params, max_new_tokens=n)) for own, n in zip(requests, (24, 3, 5), strict=True)
    ]
    drafted, accepted = guessed(model, cut)
    assert accepted and drafted
    two = generate(model, asking(model, 2), runtime="program")
    assert all(result.drafted and result.drafted <= len(result.ids) for result in two)  # one guess a row


def test_events_come_in_order_and_say_what_was_guessed(tools: Any) -> None:
    model = tools.model(tools.Case("rope", "gqa"), torch.float32)
    (request,) = asking(model, 1)
    events: list[Event] = list(stream(model, [request], runtime="program"))
    assert len(events) == 24 and [event.finish_reason for event in events[:-1]] == [None] * 23
    assert sum(event.accepted for event in events) > 3
    assert max(event.drafted for event in events) == steps.SPARE - 1


def test_steps_of_the_model_itself_have_none_to_spare(tools: Any) -> None:
    model = tools.model(dtype=torch.float32)
    assert Stepper(model, [[1]], horizons=[2]).spare == 1
    assert all(not result.drafted for result in generate(model, asking(model, 1)))
