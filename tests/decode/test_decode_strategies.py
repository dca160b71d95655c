"""Several outputs of one request, batches of strategies, and which strategy options by name ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from transpect.base.errors import GenerationError
from transpect.decode import GenerationParams, Request, generate


@pytest.mark.parametrize("batch_size", [1, 2, 3, 32])
def test_n_outputs_are_those_of_n_requests(tools: Any, batch_size: int) -> None:
    """With the seeds that follow each other, whatever shares their batches; flat, and a request's outputs together."""
    model = tools.model()
    params = [GenerationParams(6, temperature=t, seed=s, n=n) for t, s, n in [(1.0, 5, 3), (0.0, 9, 1), (2.0, 1, 2)]]
    requests = tools.requests(model, params)
    together = generate(model, requests, batch_size=batch_size)
    assert [result.choice for result in together] == [0, 1, 2, 0, 0, 1]
    alone = [
        generate(model, [replace(request, params=replace(own, n=1, seed=own.seed + i))])[0]
        for request, own in zip(requests, params, strict=True)
        for i in range(own.n)
    ]
    assert [result.ids for result in together] == [result.ids for result in alone]
    assert [result.seed for result in together] == [result.seed for result in alone]


def test_the_last_seed_is_followed_by_the_first(tools: Any) -> None:
    (request,) = tools.requests(tools.model(), [GenerationParams(3, temperature=1.0, seed=2**64 - 1, n=2)])
    assert [result.seed for result in generate(tools.model(), [request])] == [2**64 - 1, 0]


def test_no_tokens_are_asked_for_n_times(tools: Any) -> None:
    results = generate(tools.model(), [Request([1], GenerationParams(0, n=3))])
    assert [(result.ids, result.choice) for result in results] == [((), 0), ((), 1), ((), 2)]


def test_num_return_sequences_is_n() -> None:
    assert GenerationParams().override({"num_return_sequences": 3}).n == 3


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", True])
def test_n_is_a_number_from_1(n: Any) -> None:
    with pytest.raises(GenerationError, match="n must be"):
        GenerationParams(n=n)
