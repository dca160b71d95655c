"""Beam search by arrays is beam search by objects: the same outputs with the same numbers, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from transpect.decode import BeamSearch, GenerationParams, Request, Result, Row
from transpect.decode.request import collect
from transpect.decode.strategies import beam_arrays, beam_batch
from transpect.decode.strategies.beam_hypotheses import Beams
from transpect.decode.strategies.beam_ranking import best
from transpect.runtime.choosing import best_of_rows

V = 11
REQUESTS = (
    {"max_new_tokens": 7, "eos_ids": (0,), "n": 2},
    {"max_new_tokens": 1},
    {"max_new_tokens": 9, "eos_ids": (1, 2), "min_new_tokens": 4},
    {"max_new_tokens": 5, "eos_ids": (3,), "banned": (5, 6)},
    {"max_new_tokens": 8, "eos_ids": (0, 4), "ignore_eos": True},
)
CHANGES: Sequence[dict[str, Any]] = (
    {},
    {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.3, "logit_bias": ((2, 1.5),)},
    {"begin_suppress_tokens": (1, 7)},
)


def both_ways(tools: Any, tables: Sequence[Any], params: Sequence[GenerationParams]) -> tuple[list[Result], ...]:
    found = []
    for way in (beam_batch.by_objects, beam_arrays.decode):
        rows = [Row(n, Request([n], own)) for n, own in enumerate(params)]
        steps = tools.table_steps(*tables)
        plain = steps._logits
        steps._logits = lambda plain=plain: plain().float()
        strategy: Any = params[0].strategy
        beams = Beams(strategy.num_beams, strategy.length_penalty, strategy.early_stopping, strategy.renormalize_logits)
        logits = steps.prefill()
        assert beam_arrays.possible(rows, logits, beams)
        found.append(collect(way(steps, rows, beams, logits)))
    return tuple(found)


def rounded(table: Any, step: float) -> Any:
    """With many equal ones, and some that can't be."""
    return lambda written: [
        -np.inf if own < -3 else step * round(own / step) if step else own for own in table(written)
    ]


WAYS = list(itertools.product((1, 2, 4, 13), (-1.0, 0.7), (False, True), CHANGES, (True, False, "never"), (0.0, 1, 8)))


@pytest.mark.parametrize("every", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_they_are_the_same(every: int, tools: Any) -> None:
    for n, (size, penalty, renormalize, change, stopping, step) in enumerate(WAYS[::every]):
        strategy = BeamSearch(size, penalty, stopping, renormalize)
        params = [
            GenerationParams(**{**own, "n": min(size, own.get("n", 1))}, **change, strategy=strategy, seed=0)  # type: ignore[arg-type,type-var]
            for own in REQUESTS
        ]
        tables = [rounded(tools.random_table(V, 10 * n + i), step) for i in range(len(params))]
        objects, arrays = both_ways(tools, tables, params)
        assert arrays == objects


def test_where_a_ban_leaves_only_what_cannot_be(tools: Any) -> None:
    params = GenerationParams(6, min_new_tokens=3, eos_ids=(0,), strategy=BeamSearch(2), seed=0)
    objects, arrays = both_ways(tools, [lambda written: [0.0, *[-np.inf] * (V - 1)]], [params])
    assert arrays == objects and arrays[0].ids == (1, 1, 1, 0)


def test_the_best_of_rows_are_those_of_a_sorted_row() -> None:
    generator = torch.Generator().manual_seed(0)
    for size, k, step in itertools.product((1, 63, 64, 65, 1000), (1, 5, 40), (0.0, 0.5)):
        values = torch.randn(7, size, generator=generator)
        values = torch.round(values / step) * step if step else values
        less, owners = torch.randn(7, generator=generator), torch.tensor([0, 0, 1, 1, 1, 2, 2])
        banned = torch.rand(3, size, generator=generator) < 0.3
        own = (values - less[:, None]).masked_fill(banned[owners], -torch.inf)
        expected, ids = best(own, min(k, size))
        tokens, found = best_of_rows(values.numpy(), less.numpy(), banned.numpy(), owners.numpy(), min(k, size))
        for row in range(7):
            pairs = zip(expected[row].tolist(), ids[row].tolist(), strict=True)
            there = sorted((-value, token) for value, token in pairs if value > -torch.inf)
            mine = list(zip((-found[row]).tolist(), tokens[row].tolist(), strict=True))[: len(there)]
            assert mine == there and (found[row, len(there) :] == -np.inf).all()
