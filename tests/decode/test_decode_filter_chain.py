"""Each filter, alone, with each other one and all together: batched rows are as they are alone, and as spelled out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
import torch
from torch import Tensor

from transpect.decode import GenerationParams, Sampler
from transpect.decode.filters import CHAIN, PROCESSORS
from transpect.decode.trace import Trace

from .filter_cases import FILTERS, VOCAB, FilterCase, chain, params_of, trace_of

CPU = torch.device("cpu")
Rows = list[tuple[GenerationParams, Trace]]


def logits_of(count: int, seed: int, kind: str = "random") -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, VOCAB, generator=generator, dtype=torch.float64) * 3
    if kind == "ties":
        noise = noise.round()
    if kind == "holes":
        noise[torch.rand(noise.shape, generator=generator) < 0.7] = -math.inf
        noise[:, 3] = 1.0
    if kind == "flat":
        noise = torch.zeros_like(noise)
    if kind == "one left":
        noise[:] = -math.inf
        noise[:, 3] = 1.0
    return noise


def sampler(rows: Rows) -> Sampler:
    params = [params for params, _ in rows]
    return Sampler(params, [p.seed or 0 for p in params], VOCAB, CPU)


def filtered(rows: Rows, logits: Tensor) -> Tensor:
    return sampler(rows).filter(logits, [trace for _, trace in rows])


def agrees(rows: Rows, logits: Tensor) -> None:
    """Batched, alone and spelled out; never a row without a token; the same tokens."""
    together = filtered(rows, logits)
    traces = [trace for _, trace in rows]
    assert together.isfinite().any(-1).all() and not together.isnan().any() and not (together == math.inf).any()
    chosen = sampler(rows).choose(logits, traces).token.tolist()
    for i, (params, trace) in enumerate(rows):
        alone = filtered([(params, trace)], logits[i : i + 1])
        assert torch.equal(alone[0], together[i])
        assert sampler([(params, trace)]).choose(logits[i : i + 1], [trace]).token.tolist() == [chosen[i]]
        expected = torch.tensor(chain(logits[i].tolist(), params, trace), dtype=torch.float64)
        assert torch.equal(expected > -math.inf, together[i] > -math.inf), (params, trace)
        assert torch.allclose(expected.softmax(-1), together[i].softmax(-1), atol=1e-9), (params, trace)


def rows_of(random: Random, wanted: Sequence[Sequence[FilterCase]], *, constrained: bool = False) -> Rows:
    return [
        (params_of(random, cases), trace_of(random, constrained=constrained and random.random() < 0.5))
        for cases in wanted
    ]


def test_each_filter_has_its_row_here_in_its_order() -> None:
    assert [case.name for case in FILTERS] == [one.name for one in CHAIN]


@pytest.mark.parametrize("kind", ["random", "ties", "holes"])
@pytest.mark.parametrize("case", FILTERS, ids=lambda case: case.name)
def test_a_filter_alone(case: FilterCase, kind: str) -> None:
    """Half of the rows ask for it."""
    random = Random(f"{case.name} {kind}")
    agrees(rows_of(random, [[case] if i % 2 else [] for i in range(40)]), logits_of(40, random.randrange(99), kind))


@pytest.mark.parametrize("kind", ["random", "ties", "flat", "holes"])
@pytest.mark.parametrize("look", [1, 2, 5])
@pytest.mark.parametrize("name", ["top_p", "typical_p"])
def test_the_fewest_are_found_among_the_best(name: str, look: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all tokens are put in order."""
    monkeypatch.setattr("transpect.decode.filters.truncation._FIRST_LOOK", look)
    random = Random(f"{name} {look} {kind}")
    case = next(case for case in FILTERS if case.name == name)
    agrees(rows_of(random, [[case]] * 20), logits_of(20, look, kind))


@pytest.mark.parametrize("part", range(4))
def test_each_with_each_other(part: int) -> None:
    pairs = list(itertools.combinations(FILTERS, 2))[part::4]
    random = Random(part)
    agrees(rows_of(random, pairs, constrained=True), logits_of(len(pairs), part))


@pytest.mark.parametrize("kind", ["random", "ties", "holes", "one left"])
def test_many_together(kind: str) -> None:
    random = Random(kind)
    wanted = [[case for case in FILTERS if random.random() < 0.4] for _ in range(60)]
    agrees(rows_of(random, wanted, constrained=True), logits_of(60, 5, kind))


@pytest.mark.parametrize("case", FILTERS, ids=lambda case: case.name)
def test_a_filter_changes_only_rows_that_ask(case: FilterCase) -> None:
    random = Random(case.name)
    rows = rows_of(random, [[case] if i % 3 else [] for i in range(30)])
    logits = logits_of(30, 3).float()
    out = filtered(rows, logits)
    assert torch.equal(out[::3], logits[::3])
    assert not torch.equal(out, logits)


@pytest.mark.parametrize("case", FILTERS, ids=lambda case: case.name)
def test_a_filter_that_nobody_asks_for_is_not_run(case: FilterCase, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Tensor:
        raise AssertionError

    silent = tuple(one if one.name == "restrict" else replace(one, apply=never, values=never) for one in CHAIN)
    monkeypatch.setattr("transpect.decode.sampling.PROCESSORS", silent[: len(PROCESSORS)])
    monkeypatch.setattr("transpect.decode.sampling.WARPERS", silent[len(PROCESSORS) :])
    logits = logits_of(2, 0)
    rows = [(GenerationParams(temperature=1.0), Trace((1, 2), (2, 1)))] * 2
    assert torch.equal(filtered(rows, logits), logits)
    random = Random(1)
    if case.name != "restrict":
        asking = replace(params_of(random, [case]), temperature=0.5)
        with pytest.raises(AssertionError):
            filtered([(asking, trace_of(random))], logits[:1])


def test_greedy_rows_sort_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do they see any of the filters of a distribution."""
    random = Random(0)
    rows = rows_of(random, [[case for case in FILTERS if case.name != "temperature"]] * 8)
    rows = [(replace(params, temperature=0.0), trace) for params, trace in rows]
    logits = logits_of(8, 1)
    expected = filtered(rows, logits).argmax(-1)
    for name in ("sort", "topk", "argsort", "softmax", "log_softmax"):
        monkeypatch.setattr(Tensor, name, None)
    assert sampler(rows).choose(logits, [trace for _, trace in rows]).token.tolist() == expected.tolist()
    assert filtered(rows, logits).argmax(-1).tolist() == expected.tolist()


def test_rows_may_be_repeated_with_longer_pasts() -> None:
    """As a strategy asks that looks several tokens ahead."""
    random = Random(2)
    rows = rows_of(random, [list(FILTERS)] * 3)
    whole = sampler(rows)
    traces = [rows[1][1].then(*(5, 3, 5, 3)[:i]) for i in range(4)]
    logits = logits_of(4, 9)
    ahead = whole.rows([1, 1, 1, 1]).filter(logits, traces)
    for i, trace in enumerate(traces):
        assert torch.equal(ahead[i : i + 1], filtered([(rows[1][0], trace)], logits[i : i + 1]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_widened_once(dtype: torch.dtype) -> None:
    random = Random(4)
    rows = rows_of(random, [[case for case in FILTERS if random.random() < 0.5] for _ in range(20)])
    logits = logits_of(20, 2).to(dtype)
    assert torch.equal(filtered(rows, logits), filtered(rows, logits.float()))
    assert filtered(rows, logits).dtype == torch.float32


EXTREMES = [
    {"repetition_penalty": 1e-300},
    {"repetition_penalty": 1e300},
    {"encoder_repetition_penalty": 1e300},
    {"presence_penalty": 1e300, "frequency_penalty": 1e300},
    {"presence_penalty": -1e300, "frequency_penalty": -1e300},
    {"logit_bias": dict.fromkeys(range(VOCAB), -1e300)},
    {"sequence_bias": {(i,): -1e300 for i in range(VOCAB)}},
    {"exponential_decay_length_penalty": (0, 1e300), "eos_ids": (1, 2)},
    {"exponential_decay_length_penalty": (0, 1e-300), "eos_ids": tuple(range(VOCAB))},
    {"dry_multiplier": 1e300, "dry_base": 1e300, "dry_allowed_length": 0},
    {"dry_multiplier": 1e-300, "dry_base": 1.0000001},
    {"no_repeat_ngram_size": 1},
    {"bad_words": tuple((i,) for i in range(VOCAB))},
    {"begin_suppress_tokens": tuple(range(VOCAB))},
    {"temperature": 1e-300, "repetition_penalty": 1e300},
    {"no_repeat_ngram_size": 10**9, "encoder_no_repeat_ngram_size": 10**9, "dry_penalty_last_n": 10**9},
    {"typical_p": 0, "epsilon_cutoff": 1, "eta_cutoff": 1, "min_p": 1, "top_k": 0, "top_p": 0},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("changes", EXTREMES, ids=str)
def test_nothing_leaves_a_row_without_a_token(changes: dict[str, object], dtype: torch.dtype) -> None:
    params = GenerationParams(**{"temperature": 1.0, "seed": 0, **changes})  # type: ignore[arg-type]
    everything = tuple(range(VOCAB))
    pasts = [Trace(everything, everything * 2), Trace((1,)), Trace((1,) * 40, (1,) * 40), Trace((1,), (), source=(2,))]
    for kind in ("random", "holes", "one left"):
        out = filtered([(params, trace) for trace in pasts], logits_of(4, 0, kind).to(dtype))
        assert out.softmax(-1).isfinite().all()
        tokens = sampler([(params, trace) for trace in pasts]).choose(logits_of(4, 0, kind).to(dtype), pasts).token
        assert (out.gather(-1, tokens[:, None]) > -math.inf).all()
