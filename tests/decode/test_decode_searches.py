"""Searches by their definitions, spelled out in Python: groups of beams, contrast, the best of several, drawn beams."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize

from transpect.base.errors import GenerationError
from transpect.core import NO_SOURCE, Tags
from transpect.decode import (
    BeamSearch,
    BestOf,
    ContrastiveSearch,
    DiverseBeamSearch,
    GenerationParams,
    Request,
    Row,
    decode,
    generate,
)
from transpect.decode.request import collect
from transpect.decode.strategies.beam_ranking import best, drawn
from transpect.text import Tokenizer

Table = Callable[[tuple[int, ...]], Sequence[float]]
Ranked = list[tuple[tuple[int, ...], float]]


def logprobs(table: Table, written: tuple[int, ...]) -> list[float]:
    return torch.tensor(list(table(written)), dtype=torch.float64).log_softmax(-1).tolist()


# groups of beams


def in_groups(table: Table, longest: int, ends: Sequence[int], size: int, strategy: DiverseBeamSearch) -> Ranked:
    """Vijayakumar et al.: group after group, each until its outputs can't be bettered at the present length."""
    groups: list[Ranked] = [[((), 0.0)] for _ in range(strategy.num_beam_groups)]
    whole: list[Ranked] = [[] for _ in groups]
    over = [False] * len(groups)
    for length in range(1, longest + 1):
        said: Counter[int] = Counter()
        for g, beams in enumerate(groups):
            if over[g]:
                continue
            step = [
                ((*ids, token), total + logprob - strategy.diversity_penalty * said[token])
                for ids, total in beams
                for token, logprob in enumerate(logprobs(table, ids))
            ]
            known = {ids for other in whole[:g] for ids, _ in other}
            step = sorted((one for one in step if one[0] not in known), key=lambda one: -one[1])
            ending = [(ids, total) for ids, total in step[:size] if ids[-1] in ends or length == longest]
            whole[g] += [(ids, total / length**strategy.length_penalty) for ids, total in ending]
            whole[g] = sorted(whole[g], key=lambda one: -one[1])[:size]
            groups[g] = [one for one in step if one[0][-1] not in ends][:size]
            said.update(ids[-1] for ids, _ in groups[g])
            bound = groups[g][0][1] / length**strategy.length_penalty
            over[g] = len(whole[g]) == size and bound <= whole[g][-1][1]
    return sorted((one for own in whole for one in own), key=lambda one: -one[1])


@pytest.mark.parametrize("penalty", [0.05, 0.7, 3.0])
@pytest.mark.parametrize(("size", "n_groups"), [(1, 3), (2, 2), (3, 2), (2, 1)])
def test_groups_are_those_of_the_definition(size: int, n_groups: int, penalty: float, tools: Any) -> None:
    for seed in range(8):
        table = tools.random_table(7, seed)
        strategy = DiverseBeamSearch(n_groups, size * n_groups, penalty, length_penalty=0.8)
        params = GenerationParams(6, eos_ids=(0, 3), n=size * n_groups, strategy=strategy, seed=0)
        found = collect(decode(tools.table_steps(table), [Row(0, Request([0], params))]))
        expected = in_groups(table, 6, (0, 3), size, strategy)
        assert [result.ids for result in found] == [ids for ids, _ in expected]
        assert [result.score for result in found] == pytest.approx([score for _, score in expected])
        assert len({result.ids for result in found}) == len(found)


def test_one_group_is_beam_search_and_more_of_them_differ(tools: Any) -> None:
    spread = Counter[str]()
    for seed in range(5):
        table = tools.random_table(7, seed, 1.0)
        for name, strategy in (
            ("beams", BeamSearch(4)),
            ("one group", DiverseBeamSearch(1, 4)),
            ("groups", DiverseBeamSearch(4, 4, 2.0)),
        ):
            params = GenerationParams(6, n=4, strategy=strategy, seed=0)
            found = collect(decode(tools.table_steps(table), [Row(0, Request([0], params))]))
            spread[name] += sum(
                a != b
                for one, other in itertools.combinations(found, 2)
                for a, b in zip(one.ids, other.ids, strict=True)
            )
    assert spread["beams"] == spread["one group"] < spread["groups"]


# contrast


@torch.no_grad()
def contrasted(model: Any, request: Request, alpha: float) -> list[int]:
    """Su et al., eq. 5, every vector read anew."""
    params, ids = request.params, list(request.prompt)
    source = NO_SOURCE if request.source is None else model.encode(torch.tensor([list(request.source)]))
    horizon = torch.tensor([len(ids) + params.max_new_tokens])

    def read(tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        position = torch.arange(len(tokens))[None]
        tags = Tags.of(position, prefix=position < len(request.prompt), horizon=horizon)
        hidden = model.hidden(torch.tensor([tokens]), tags=tags, source=source)
        return hidden[0], model.head(hidden, tags, model.token.weight)[0, -1]

    for step in range(params.max_new_tokens):
        said, logits = read(ids)
        if step < params.min_new_tokens:
            logits[list(params.eos_ids)] = -math.inf
        probability = logits.softmax(-1)
        scores = {
            token: (1 - alpha) * float(probability[token])
            - alpha * float((normalize(said, dim=-1) @ normalize(read([*ids, token])[0][-1], dim=-1)).max())
            for token in probability.topk(min(params.top_k or 1, len(probability))).indices.tolist()
        }
        ids.append(max(scores, key=scores.__getitem__))
        if ids[-1] in params.eos_ids:
            break
    return ids[len(request.prompt) :]


@pytest.mark.parametrize(
    ("shape", "alpha"), [("mha", 0.5), ("mha", 1.0), ("gqa", 0.3), ("window", 0.5), ("encoder-decoder", 0.6)]
)
def test_contrast_is_that_of_the_definition(shape: str, alpha: float, tools: Any) -> None:
    model = tools.model(tools.Case("rope", shape))
    ends = tuple(range(0, 31, 5))
    params = [
        GenerationParams(7, top_k=4, strategy=ContrastiveSearch(alpha)),
        GenerationParams(9, top_k=2, eos_ids=ends, min_new_tokens=3, strategy=ContrastiveSearch(alpha)),
        GenerationParams(5, top_k=100, strategy=ContrastiveSearch(alpha)),
    ]
    requests = tools.requests(model, params)
    found = [list(result.ids) for result in generate(model, requests)]
    assert found == [contrasted(model, request, alpha) for request in requests]
    greedy = [
        replace(request, params=replace(own, strategy=GenerationParams().strategy))
        for request, own in zip(requests, params, strict=True)
    ]
    assert found != [list(result.ids) for result in generate(model, greedy)]


def test_without_a_penalty_contrast_is_greedy(tools: Any) -> None:
    model = tools.model()
    for strategy, top_k in ((ContrastiveSearch(0.0), 5), (ContrastiveSearch(0.9), 0), (ContrastiveSearch(0.9), 1)):
        requests = tools.requests(model, [GenerationParams(8, top_k=top_k, strategy=strategy)] * 3)
        greedy = tools.requests(model, [GenerationParams(8)] * 3)
        assert [r.ids for r in generate(model, requests)] == [r.ids for r in generate(model, greedy)]


# the best of several


def test_the_best_of_several_are_the_best_of_their_seeds(tools: Any) -> None:
    model = tools.model()
    params = GenerationParams(6, temperature=1.2, eos_ids=tuple(range(0, 31, 4)), seed=7, n=2, strategy=BestOf(5))
    requests = tools.requests(model, [params, replace(params, n=5), replace(params, n=1, seed=2**64 - 2)])
    found = generate(model, requests)
    expected = []
    for request in requests:
        own, seed = request.params, request.params.seed
        assert seed is not None
        single = replace(own, n=1, strategy=GenerationParams().strategy)
        draws = [
            generate(model, [replace(request, params=replace(single, seed=(seed + i) % 2**64))])[0] for i in range(5)
        ]
        means = [sum(draw.logprobs) / len(draw.logprobs) for draw in draws]
        ranked = sorted(range(5), key=lambda i: -means[i])[: own.n]
        expected += [(draws[i].ids, draws[i].seed, pytest.approx(means[i]), choice) for choice, i in enumerate(ranked)]
    assert [(result.ids, result.seed, result.score, result.choice) for result in found] == expected


# drawn beams


def test_continuations_are_drawn_without_replacement() -> None:
    """χ² over all ordered triples of two rows × two tokens, 4,000 seeds; not rejected at 1 %."""
    totals = torch.tensor([[0.5, 0.2], [0.2, 0.1]], dtype=torch.float64).log() - 3.0
    share = totals.exp().flatten() / totals.exp().sum()
    cells = list(itertools.permutations(range(4), 3))
    law = {}
    for a, b, c in cells:
        p, q, r = (float(share[i]) for i in (a, b, c))
        law[a, b, c] = p * q / (1 - p) * r / (1 - p - q)
    counts = Counter(
        tuple(2 * row + token for row, token in drawn(totals, 3, seed=seed, step=1)) for seed in range(4_000)
    )
    statistic = sum((counts[cell] - 4_000 * law[cell]) ** 2 / (4_000 * law[cell]) for cell in cells)
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    assert float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64))) > 0.01


def test_what_is_drawn_ends_with_what_there_is() -> None:
    totals = torch.tensor([[-1.0, -math.inf, -2000.0], [-math.inf, -5000.0, -1.5]])
    kept = totals.clone()
    assert set(drawn(totals, 9, seed=3, step=0)) == {(0, 0), (0, 2), (1, 1), (1, 2)}
    assert torch.equal(totals, kept)


def test_drawn_beams_follow_seed_and_filters(tools: Any) -> None:
    model = tools.model()
    params = [
        GenerationParams(6, temperature=1.5, top_k=3, seed=seed, n=3, strategy=BeamSearch(3)) for seed in (1, 1, 2)
    ]
    requests = [Request([4, 5], own) for own in params]
    results = generate(model, requests)
    first, again, other = results[:3], results[3:6], results[6:]
    assert [result.ids for result in first] == [result.ids for result in again] != [result.ids for result in other]
    for result in first:
        ids = [4, 5]
        total = 0.0
        for token in result.ids:
            with torch.no_grad():
                logprob = model(torch.tensor([ids]))[0, -1].log_softmax(-1)
            assert token in logprob.topk(3).indices.tolist()
            total += float(logprob[token]) / 1.5
            ids.append(token)
        assert result.score == pytest.approx(total / len(result.ids))


# the ends of beams


def test_the_best_of_equals_are_the_lower_ids() -> None:
    for size, k in itertools.product((3, 10), (1, 2, 5, 20)):
        scores = torch.randint(0, 3, (40, size), generator=torch.Generator().manual_seed(k)).double()
        scores[:, 0] = -math.inf
        values, tokens = best(scores, k)
        for row, own, ids in zip(scores.tolist(), values.tolist(), tokens.tolist(), strict=True):
            assert [row[i] for i in ids] == own
            finite = sorted(range(1, size), key=lambda i: (-row[i], i))[:k]
            assert {i for i in ids if row[i] > -math.inf} == set(finite)


@pytest.mark.parametrize("stop", [("ab",), ("ca", "bc"), ("aab", "b")])
def test_a_stop_string_ends_a_beam_like_an_eos(stop: tuple[str, ...], letters: Tokenizer, tools: Any) -> None:
    """Over tables of letters, and whatever comes after a stop string there."""
    ids = {letter: letters.encode(letter)[0] for letter in "abco"}
    name = {i: letter for letter, i in ids.items()}
    ended = 0
    for seed in range(6):
        base = tools.random_table(4, seed)

        def table(written: tuple[int, ...], base: Table = base) -> Sequence[float]:
            row = [-math.inf] * letters.vocab_size
            for i, logit in zip(ids.values(), base(written), strict=True):
                row[i] = logit
            return row

        expected = stopping_at(lambda own: any(one in "".join(name[i] for i in own) for one in stop), table, 5, 3)
        params = GenerationParams(5, stop=stop, n=3, strategy=BeamSearch(3, early_stopping="never"), seed=0)
        found = collect(decode(tools.table_steps(table), [Row(0, Request([ids["o"]], params), letters)]))
        assert [(result.ids, result.finish_reason == "stop") for result in found] == [one[:2] for one in expected]
        assert [result.score for result in found] == pytest.approx([score for _, _, score in expected])
        assert not any(one in result.text for one in stop for result in found)
        ended += sum(result.finish_reason == "stop" for result in found)
    assert ended


def stopping_at(
    stopped: Callable[[tuple[int, ...]], bool], table: Table, longest: int, size: int
) -> list[tuple[tuple[int, ...], bool, float]]:
    """The ``size`` best outputs of a beam search to the end: tokens, whether they are stopped, mean log-probability."""
    running: Ranked = [((), 0.0)]
    whole: list[tuple[tuple[int, ...], bool, float]] = []
    for length in range(1, longest + 1):
        step = [
            ((*before, token), total + logprob)
            for before, total in running
            for token, logprob in enumerate(logprobs(table, before))
            if logprob > -math.inf
        ]
        step.sort(key=lambda one: -one[1])
        ending = [(own, total) for own, total in step[:size] if stopped(own) or length == longest]
        whole += [(own, stopped(own), total / length) for own, total in ending]
        running = [one for one in step if not stopped(one[0])][:size]
    return sorted(whole, key=lambda one: -one[2])[:size]


RISES: list[dict[str, Any]] = [
    {"sequence_bias": {(1, 1): 2.0}},
    {"presence_penalty": -2.0},
    {"frequency_penalty": -1.0},
    {"logit_bias": {1: 0.5, 0: -1.0}},
    {"exponential_decay_length_penalty": (2, 3.0)},
]


@pytest.mark.parametrize("options", RISES, ids=str)
def test_never_waits_where_sums_may_rise(options: dict[str, Any], tools: Any) -> None:
    """An EOS of .6 at once and a of .4 behind it, which what is added to a a or to a late EOS brings past it."""

    def table(written: tuple[int, ...]) -> Sequence[float]:
        return [math.log(p) for p in ((0.02, 0.98) if written else (0.6, 0.4))]

    params = GenerationParams(6, eos_ids=(0,), seed=0)
    for penalty in (-1.0, 0.0, 1.0):
        best_of_all, found = (
            collect(decode(tools.table_steps(table), [Row(0, Request([0], params.override({**options, **asked})))]))[0]
            for asked in (
                {"num_beams": 64, "length_penalty": penalty},  # more than there are outputs: it goes to the end
                {"num_beams": 2, "length_penalty": penalty, "early_stopping": "never"},
            )
        )
        assert len(best_of_all.ids) > 1
        assert (found.ids, found.score) == (best_of_all.ids, best_of_all.score)


# what can't be


def test_requests_that_contradict_their_search_are_refused(tools: Any) -> None:
    config = tools.config(tools.Case())
    for strategy, params, rule in (
        (ContrastiveSearch(), {}, "top_k"),
        (ContrastiveSearch(), {"top_k": 4, "temperature": 1.0}, "draws nothing"),
        (ContrastiveSearch(), {"top_k": 4, "n": 2}, "one output"),
        (BestOf(2), {"n": 3, "temperature": 1.0}, "n must not exceed"),
        (BestOf(2), {}, "differ"),
    ):
        with pytest.raises(GenerationError, match=rule) as caught:
            strategy.check(GenerationParams(**params), config)
        assert caught.value.remedy
    for build in (
        lambda: ContrastiveSearch(1.5),
        lambda: ContrastiveSearch(-0.1),
        lambda: BestOf(0),
        lambda: BestOf(1.5),
    ):
        with pytest.raises(GenerationError) as caught:
            build()
        assert caught.value.remedy
    with pytest.raises(GenerationError, match="guidance_scale"):
        GenerationParams(guidance_scale=math.inf)


def test_options_by_name_choose_the_search() -> None:
    base = GenerationParams()
    for options, strategy in (
        ({"num_beams": 3}, BeamSearch(3)),
        ({"num_beams": 3, "length_penalty": 0.5, "early_stopping": "never"}, BeamSearch(3, 0.5, "never")),
        ({"num_beams": 6, "num_beam_groups": 3}, DiverseBeamSearch(3, 6)),
        ({"num_beams": 6, "num_beam_groups": 1}, BeamSearch(6)),
        ({"penalty_alpha": 0.4}, ContrastiveSearch(0.4)),
        ({"best_of": 3}, BestOf(3)),
        ({"num_beams": 1}, base.strategy),
        ({"penalty_alpha": 0}, base.strategy),
    ):
        assert base.override(options).strategy == strategy
    with pytest.raises(GenerationError, match="length_penalty"):
        base.override({"length_penalty": 2.0})
    assert base.override({"num_beams": 3}).override({"length_penalty": 2.0}).strategy == BeamSearch(3, 2.0)
