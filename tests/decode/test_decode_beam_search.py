"""Beam search on tables of probabilities against all outputs there are, and against itself without a shortcut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from transpect.base.errors import GenerationError
from transpect.decode import BeamSearch, DiverseBeamSearch, GenerationParams, Request, Result, Row, decode
from transpect.decode.request import collect

Table = Callable[[tuple[int, ...]], Sequence[float]]
PENALTIES = (-1.0, -0.5, 0.0, 0.7, 1.0, 2.0)
STOPPING = (True, False, "never")
Ranked = list[tuple[tuple[int, ...], float]]


def beams(tools: Any, table: Table, longest: int, ends: Sequence[int] = (), n: int = 1, **options: Any) -> list[Result]:
    params = GenerationParams(longest, eos_ids=tuple(ends), n=n, strategy=BeamSearch(**options), seed=0)
    return collect(decode(tools.table_steps(table), [Row(0, Request([0], params))]))


def ranked(results: Sequence[Result]) -> Ranked:
    assert [result.choice for result in results] == list(range(len(results)))
    assert len({result.ids for result in results}) == len(results), "an output is found once"
    return [(result.ids, result.score) for result in results if result.score is not None]


def agree(found: Ranked, expected: Ranked) -> None:
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-9)


def logprobs(table: Table, written: tuple[int, ...]) -> list[float]:
    return torch.tensor(list(table(written)), dtype=torch.float64).log_softmax(-1).tolist()


def everything(table: Table, longest: int, ends: Sequence[int], penalty: float) -> Ranked:
    """All outputs there are, the best first."""
    running: Ranked = [((), 0.0)]
    whole: Ranked = []
    for length in range(1, longest + 1):
        step = [
            ((*ids, token), total + logprob)
            for ids, total in running
            for token, logprob in enumerate(logprobs(table, ids))
            if logprob > -math.inf
        ]
        whole += [(ids, total / length**penalty) for ids, total in step if ids[-1] in ends or length == longest]
        running = [(ids, total) for ids, total in step if ids[-1] not in ends]
    return sorted(whole, key=lambda one: -one[1])


def to_the_end(table: Table, longest: int, ends: Sequence[int], size: int, penalty: float) -> Ranked:
    """Beam search that stops for nothing but the last token: all outputs that it comes upon, the best first."""
    running: Ranked = [((), 0.0)]
    whole: Ranked = []
    for length in range(1, longest + 1):
        step = [
            ((*ids, token), total + logprob)
            for ids, total in running
            for token, logprob in enumerate(logprobs(table, ids))
        ]
        step.sort(key=lambda one: -one[1])
        whole += [(ids, total / length**penalty) for ids, total in step[:size] if ids[-1] in ends or length == longest]
        running = [(ids, total) for ids, total in step if ids[-1] not in ends][:size]
    return sorted(whole, key=lambda one: -one[1])


@pytest.mark.parametrize(("vocab_size", "longest", "ends"), [(3, 3, (0,)), (2, 4, ()), (4, 3, (1, 3)), (3, 2, (0, 1))])
def test_wide_enough_beams_find_the_best_of_all(vocab_size: int, longest: int, ends: Sequence[int], tools: Any) -> None:
    """With at least V ** L beams, over penalties × ways to stop."""
    for seed, penalty, stopping in itertools.product(range(3), PENALTIES, STOPPING):
        table = tools.random_table(vocab_size, seed)
        size = vocab_size**longest
        best = everything(table, longest, ends, penalty)
        options = {"num_beams": size, "length_penalty": penalty, "early_stopping": stopping}
        agree(ranked(beams(tools, table, longest, ends, n=size, **options)), best)
        agree(ranked(beams(tools, table, longest, ends, n=2, **options)), best[:2])


@pytest.mark.parametrize("penalty", PENALTIES)
def test_never_is_exact(penalty: float, tools: Any) -> None:
    """Stopping early by the bound changes nothing; by the heuristic it does, so the tables put it to the proof."""
    heuristic = 0
    for seed, size, n in itertools.product(range(12), (1, 2, 3), (1, 2)):
        if n > size:
            continue
        table = tools.random_table(6, seed)
        best = to_the_end(table, 9, (0, 4), size, penalty)[:n]
        options = {"n": n, "num_beams": size, "length_penalty": penalty}
        agree(ranked(beams(tools, table, 9, (0, 4), early_stopping="never", **options)), best)
        found = ranked(beams(tools, table, 9, (0, 4), early_stopping=False, **options))
        heuristic += [ids for ids, _ in found] != [ids for ids, _ in best]
    assert (heuristic > 0) == (penalty > 0)


def test_the_bound_ends_the_work(tools: Any) -> None:
    """An EOS of probability .5 at once: the next best token has .3, and .3^t of at most 20 tokens may score better than
    it at penalty 1 as long as t ln .3 / 20 > ln .5."""
    asked: list[tuple[int, ...]] = []

    def table(written: tuple[int, ...]) -> Sequence[float]:
        asked.append(written)
        return [math.log(p) for p in (0.5, 0.3, 0.2)]

    for penalty, stopping, steps in (
        (0.0, "never", 1),
        (-1.0, "never", 1),
        (1.0, "never", math.ceil(20 * math.log(0.5) / math.log(0.3))),
        (0.0, False, 2),
        (1.0, True, 2),
    ):
        asked.clear()
        beams(tools, table, 20, (0,), num_beams=2, length_penalty=penalty, early_stopping=stopping)
        assert max(map(len, asked)) + 1 == steps, (penalty, stopping)


WORDS = {"EOS": 0, "a": 1, "b": 2}


def issue_table(written: tuple[int, ...]) -> Sequence[float]:
    row = {(): (0.40, 0.35, 0.25), (1,): (0.05, 0.95, 0.0), (1, 1): (1.0, 0.0, 0.0)}.get(written, (0.0, 0.5, 0.5))
    return [math.log(p) if p else -math.inf for p in row]


@pytest.mark.parametrize("stopping", STOPPING)
def test_the_length_penalty_decides_between_a_a_and_nothing(stopping: Any, tools: Any) -> None:
    for penalty, expected, probability in ((1.0, (1, 1, 0), 0.35 * 0.95), (0.0, (0,), 0.40)):
        (found,) = beams(tools, issue_table, 5, (0,), num_beams=2, length_penalty=penalty, early_stopping=stopping)
        assert found.ids == expected
        assert found.score == pytest.approx(math.log(probability) / len(expected) ** penalty)
        assert sum(found.logprobs) == pytest.approx(math.log(probability))
        assert found.finish_reason == "eos"


def test_an_end_beyond_the_first_ranks_is_dropped(tools: Any) -> None:
    """Of two beams b (.35) and c (.33), the ends b EOS and c EOS come fifth and sixth, though they'd score best."""

    def table(written: tuple[int, ...]) -> Sequence[float]:
        rows = {0: (0.0, 0.32, 0.35, 0.33), 1: (0.2, 0.3, 0.25, 0.25)}
        return [math.log(p) if p else -math.inf for p in rows[min(len(written), 1)]]

    found = beams(tools, table, 3, (0,), n=2, num_beams=2, length_penalty=-4.0, early_stopping="never")
    assert all(len(result.ids) == 3 and result.finish_reason == "length" for result in found)


@pytest.mark.parametrize("size", [1, 2, 5, 40, 300])
def test_beams_wider_than_what_is_there(size: int, tools: Any) -> None:
    """Two tokens, one of them the end: 5 outputs of up to 4 tokens, however many are asked for."""
    table = tools.random_table(2, 3)
    for stopping in STOPPING:
        found = ranked(beams(tools, table, 4, (0,), n=size, num_beams=size, early_stopping=stopping))
        assert len(found) == min(size, 5)
        if size >= 5:
            agree(found, everything(table, 4, (0,), 1.0))


def test_one_beam_is_greedy_without_ends(tools: Any) -> None:
    table = tools.random_table(7, 5)
    greedy = collect(decode(tools.table_steps(table), [Row(0, Request([0], GenerationParams(8, seed=0)))]))
    assert [result.ids for result in beams(tools, table, 8, num_beams=1)] == [result.ids for result in greedy]


def test_tokens_that_only_a_ban_lets_through_come_last(tools: Any) -> None:
    """P(EOS) = 1 and three tokens at least: three others, then EOS, and a score that says how improbable that is."""

    def table(written: tuple[int, ...]) -> Sequence[float]:
        return [0.0, -math.inf, -math.inf]

    params = GenerationParams(6, min_new_tokens=3, eos_ids=(0,), strategy=BeamSearch(2), seed=0)
    (found,) = collect(decode(tools.table_steps(table), [Row(0, Request([0], params))]))
    assert found.ids == (1, 1, 1, 0)
    assert found.score is not None and -1e10 < found.score < -1e8


# several requests in a batch


def test_requests_of_a_batch_do_not_feel_each_other(tools: Any) -> None:
    """Of other lengths, ends, filters and numbers of outputs; whoever is over leaves."""
    shared: dict[str, Any] = {"num_beams": 3, "length_penalty": 0.8}
    for strategy in (BeamSearch(**shared), DiverseBeamSearch(num_beam_groups=3, **shared)):
        params = [
            GenerationParams(7, eos_ids=(0,), n=3, strategy=strategy, seed=0),
            GenerationParams(1, strategy=strategy, seed=0),
            GenerationParams(9, eos_ids=(1, 2), min_new_tokens=4, strategy=strategy, seed=0),
            GenerationParams(5, eos_ids=(3,), banned=(5, 6), n=2, strategy=strategy, seed=0),
            GenerationParams(7, eos_ids=(0,), n=3, strategy=strategy, seed=0),
        ]
        tables = [tools.random_table(7, seed) for seed in (1, 2, 3, 4, 1)]
        rows = [Row(i, Request([i], own)) for i, own in enumerate(params)]
        together = collect(decode(tools.table_steps(*tables), rows))
        for table, own in zip(tables, params, strict=True):
            alone = collect(decode(tools.table_steps(table), [Row(0, Request([0], own))]))
            mine = [together.pop(0) for _ in range(own.n)]
            agree(ranked(mine), ranked(alone))
        assert not together


@pytest.mark.parametrize("stopping", STOPPING)
def test_equal_scores_are_broken_alike_in_every_batch(stopping: Any, tools: Any) -> None:
    """All tokens are equally probable: the lower ids come first, whatever else is asked for in the batch."""
    strategy = BeamSearch(4, early_stopping=stopping)
    alone, many = GenerationParams(3, n=4, strategy=strategy, seed=0), tuple(range(1, 20))
    neighbour = GenerationParams(3, eos_ids=many, strategy=strategy, seed=0)
    flat = lambda written: [0.0] * 50  # noqa: E731
    rows = [Row(0, Request([0], alone)), Row(1, Request([0], neighbour))]
    for found in (
        decode(tools.table_steps(flat), rows[:1]),
        decode(tools.table_steps(flat, flat), [row.twin(0) for row in rows]),
    ):
        ids = [result.ids for result in collect(found)][:4]
        assert ids == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3)]


# what can't be


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: BeamSearch(0), "num_beams"),
    (lambda: BeamSearch(2.0), "num_beams"),  # type: ignore[arg-type]
    (lambda: BeamSearch(True), "num_beams"),
    (lambda: BeamSearch(2, length_penalty=math.inf), "length_penalty"),
    (lambda: BeamSearch(2, length_penalty=17), "length_penalty"),
    (lambda: BeamSearch(2, early_stopping="always"), "early_stopping"),  # type: ignore[arg-type]
    (lambda: BeamSearch(2, early_stopping=1), "early_stopping"),  # type: ignore[arg-type]
    (lambda: DiverseBeamSearch(3, num_beams=4), "multiple"),
    (lambda: DiverseBeamSearch(0), "num_beam_groups"),
    (lambda: DiverseBeamSearch(2, diversity_penalty=0), "diversity_penalty"),
    (lambda: DiverseBeamSearch(2, diversity_penalty=math.nan), "diversity_penalty"),
]


@pytest.mark.parametrize(("build", "rule"), REFUSED)
def test_options_out_of_range_are_refused(build: Callable[[], Any], rule: str) -> None:
    with pytest.raises(GenerationError, match=rule) as caught:
        build()
    assert caught.value.remedy


def test_requests_that_ask_for_too_much_are_refused(tools: Any) -> None:
    config = tools.config(tools.Case())
    with pytest.raises(GenerationError, match="n must not exceed"):
        BeamSearch(2).check(GenerationParams(n=3), config)
    with pytest.raises(GenerationError, match="drawn"):
        DiverseBeamSearch().check(GenerationParams(temperature=1.0), config)


@pytest.mark.parametrize("temperature", [1e-6, 1e-45, 1e-300])
def test_drawn_beams_become_the_best_ones_at_last(temperature: float, tools: Any) -> None:
    """The colder, the surer the best continuations are drawn, down to the smallest of numbers."""
    for seed in range(4):
        table = tools.random_table(4, seed)
        best = beams(tools, table, 5, (0,), n=3, num_beams=3)
        params = GenerationParams(5, eos_ids=(0,), n=3, strategy=BeamSearch(3), seed=seed, temperature=temperature)
        drawn = collect(decode(tools.table_steps(table), [Row(0, Request([0], params))]))
        assert [one.ids for one in drawn] == [one.ids for one in best]


def test_renormalized_beams_rank_by_what_is_left(tools: Any) -> None:
    """A ban is then as if the model had no such token; where nothing is filtered, nothing changes."""
    options = {"num_beams": 3, "renormalize_logits": True}
    for seed in range(4):
        table = tools.random_table(5, seed)

        def without(written: tuple[int, ...], table: Table = table) -> Sequence[float]:
            return [-math.inf if token == 2 else logit for token, logit in enumerate(table(written))]

        params = GenerationParams(4, eos_ids=(0,), n=3, seed=0).override(options)
        requests = [Request([0], replace(params, banned=(2,))), Request([0], params)]
        steps = tools.table_steps(table, without)
        held = collect(decode(steps, [Row(i, request) for i, request in enumerate(requests)]))
        agree(ranked(held[:3]), ranked(held[3:]))
        agree(ranked(beams(tools, table, 4, (0,), 3, **options)), ranked(beams(tools, table, 4, (0,), 3, num_beams=3)))
