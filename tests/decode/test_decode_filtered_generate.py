"""Whole outputs through the filters: batched and cached, alone, and spelled out."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
import torch

from transpect.core import NO_SOURCE, Transformer
from transpect.decode import GenerationParams, Request, generate, uniform
from transpect.decode.trace import Trace

from .filter_cases import FILTERS, chain, params_of


def drawn(row: list[float], params: GenerationParams, step: int) -> int:
    weights = [math.exp(x - max(row)) for x in row]
    assert params.seed is not None
    level, reached = uniform(params.seed, step) * math.fsum(weights), 0.0
    for token, weight in enumerate(weights):
        reached += weight
        if reached > level:
            return token
    raise AssertionError


@torch.no_grad()
def spelled_out(model: Transformer, request: Request) -> tuple[int, ...]:
    source = NO_SOURCE if request.source is None else model.encode(torch.tensor([list(request.source)]))
    trace = Trace(tuple(request.prompt), source=None if request.source is None else tuple(request.source))
    while len(trace.written) < request.params.max_new_tokens:
        logits = model(torch.tensor([[*trace.prompt, *trace.written]]), source=source)[0, -1].tolist()
        trace = trace.then(drawn(chain(logits, request.params, trace), request.params, len(trace.written)))
        if trace.written[-1] in request.params.ends:
            break
    return trace.written


@pytest.mark.parametrize("shape", ["mha", "encoder-decoder"])
@pytest.mark.parametrize("share", [0.15, 0.5])
def test_filters_in_decoding(shape: str, share: float, tools: Any) -> None:
    """Eight requests of all kinds in one batch."""
    model, random = tools.model(tools.Case("rope", shape)), Random(f"{shape} {share}")
    params = [params_of(random, [case for case in FILTERS if random.random() < share]) for _ in range(8)]
    requests = tools.requests(model, params)
    together = generate(model, requests, batch_size=8)
    for request, result in zip(requests, together, strict=True):
        assert result.ids == spelled_out(model, request)
        assert result.ids == generate(model, [request])[0].ids
    assert len({result.ids for result in together}) > 5
