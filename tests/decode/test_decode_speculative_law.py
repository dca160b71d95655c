"""Speculative decoding gives the law of decoding without drafts: the joint one of several tokens, with filters.

All seeds were fixed before the first run; 1e5 draws for each mode under all filters; no rejection at 1 % after Holm.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.decode import GenerationParams, Request, Row, Sampler, Trace
from transpect.decode.guidance import Guided
from transpect.decode.strategies import EarlyExit, PromptLookup
from transpect.decode.strategies.acceptance import left_over, stays
from transpect.decode.strategies.draft_model import ByModel
from transpect.decode.strategies.early_exit import ByLayers
from transpect.decode.strategies.prompt_lookup import Lookup
from transpect.decode.strategies.speculative import Drafter, speculate

from .chi_squared import holm, p_value

CPU = torch.device("cpu")
V, NEW = 3, 3
PROMPT = (0, 1, 2, 0, 1)


# one token: the rule alone

PAIRS = {
    "the textbook's": ([0.5, 0.3, 0.2], [0.1, 0.2, 0.7]),
    "a draft that can't": ([0.5, 0.3, 0.2], [0.0, 0.4, 0.6]),
    "a target that won't": ([0.6, 0.0, 0.4], [0.2, 0.7, 0.1]),
    "the same": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "apart": ([0.0, 0.3, 0.7], [1.0, 0.0, 0.0]),
}


def judged(p: Sequence[float], q: Sequence[float], draws: int, seed: int) -> tuple[Tensor, Tensor]:
    """Counts of what comes out, and the share of drafted tokens that stay."""
    generator = torch.Generator().manual_seed(seed)
    target, law = (torch.tensor(own, dtype=torch.float64).log().expand(draws, -1) for own in (p, q))
    token = torch.multinomial(law.exp(), 1, generator=generator)[:, 0]
    good = stays(target, law, token, torch.rand(draws, generator=generator, dtype=torch.float64))
    other = torch.multinomial(left_over(target, law).exp(), 1, generator=generator)[:, 0]
    return torch.bincount(torch.where(good, token, other), minlength=len(p)), good.double().mean()


def test_the_rule_keeps_the_law_and_accepts_what_they_share() -> None:
    found = {}
    for seed, (name, (p, q)) in enumerate(PAIRS.items()):
        counts, share = judged(p, q, 100_000, seed)
        found[name] = p_value(counts, torch.tensor(p))
        assert float(share) == pytest.approx(sum(map(min, p, q)), abs=0.01), name
    assert not holm(found)


def test_the_test_of_the_rule_has_power() -> None:
    counts, _ = judged([0.5, 0.3, 0.2], [0.1, 0.2, 0.7], 100_000, 9)
    assert p_value(counts, torch.tensor([0.49, 0.31, 0.2])) < 1e-4


# several tokens: the way through, on tables


class Table:
    """`Steps` whose logits are a table: of what a row has written, as a number with as many digits."""

    vocab_size, device, spare = V, CPU, 1

    def __init__(self, logits: Tensor, rows: int, ahead: Tensor | None = None) -> None:
        self.logits, self._ahead = logits, ahead
        self._past = torch.zeros(rows, 1, dtype=torch.long)  # [B, columns]: where in the table each row was
        self._real = torch.ones(rows, 1, dtype=torch.bool)

    def prefill(self) -> Tensor:
        return self.logits[self._now()]

    def advance(self, token: Tensor) -> Tensor:
        return self.extend(token[:, None])[:, 0]

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
        for column in range(tokens.shape[1]):
            now, there = self._now(), real[:, column]
            self._past = torch.cat([self._past, torch.where(there, now * V + 1 + tokens[:, column], now)[:, None]], 1)
            self._real = torch.cat([self._real, there[:, None]], 1)
        return self.logits[self._past[:, -tokens.shape[1] :]]

    def forget(self, keep: Tensor) -> None:
        self._real[:, self._real.shape[1] - keep.shape[1] :] &= keep

    def select(self, rows: Sequence[int]) -> None:
        self._past, self._real = self._past[list(rows)], self._real[list(rows)]

    @contextmanager
    def ahead(self, n_layers: int) -> Iterator[Callable[[Tensor, Tensor | None], Tensor]]:
        first = Table(self._ahead, len(self._past))
        first._past, first._real = self._past, self._real
        yield first.extend

    @property
    def hidden(self) -> Tensor:
        raise AssertionError("a table has none")

    def _now(self) -> Tensor:
        last = self._real.shape[1] - 1 - self._real.flip(1).long().argmax(1, keepdim=True)
        return self._past.gather(1, last)[:, 0]


class Pair:
    """`Steps` of 2B rows for guidance: B that a table answers, and after them B that another one does."""

    vocab_size, device, spare, hidden = V, CPU, 1, None

    def __init__(self, rows: int) -> None:
        self._halves = Table(TARGET, rows, ahead=DRAFT), Table(AWAY, rows, ahead=DRAFT_AWAY)

    def prefill(self, *, every: bool = False) -> Tensor:
        return torch.cat([half.prefill() for half in self._halves])

    def advance(self, token: Tensor) -> Tensor:
        return self.extend(token[:, None])[:, 0]

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        return _in_halves([half.extend for half in self._halves], tokens, real)

    def forget(self, keep: Tensor) -> None:
        for half, own in zip(self._halves, keep.chunk(2), strict=True):
            half.forget(own)

    def select(self, rows: Sequence[int]) -> None:
        count = len(rows) // 2
        for half in self._halves:
            half.select(rows[:count])

    @contextmanager
    def ahead(self, n_layers: int) -> Iterator[Callable[[Tensor, Tensor | None], Tensor]]:
        one, other = self._halves
        with one.ahead(n_layers) as first, other.ahead(n_layers) as second:
            yield lambda tokens, real: _in_halves([first, second], tokens, real)


def _in_halves(reads: Sequence[Callable[..., Tensor]], tokens: Tensor, real: Tensor | None) -> Tensor:
    marks = [None, None] if real is None else real.chunk(2)
    return torch.cat([read(own, mark) for read, own, mark in zip(reads, tokens.chunk(2), marks, strict=True)])


def table(seed: int, spread: float = 1.5) -> Tensor:
    """[1 + V + V² + V³, V]."""
    places = sum(V**n for n in range(NEW + 1))
    return torch.randn(places, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread


FILTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all": {
        "temperature": 0.8,
        "top_k": 2,
        "top_p": 0.95,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.4,
        "min_p": 0.05,
        "min_new_tokens": 2,
        "eos_ids": (2,),
    },
    "guided": {
        "guidance_scale": 1.7,
        "n": 3,
        "min_p": 0.1,
        "eos_ids": (1,),
        "repetition_penalty": 1.4,
        "dry_multiplier": 0.4,
        "dry_allowed_length": 1,
    },
    "past": {"no_repeat_ngram_size": 3, "frequency_penalty": 0.7, "logit_bias": {0: 0.5}, "typical_p": 0.95},
}
TARGET, DRAFT, AWAY, DRAFT_AWAY = (table(seed) for seed in (1, 2, 3, 4))
MODES = ("prompt look-up", "draft model", "early exit")


def drafter(mode: str, steps: Any, rows: Sequence[Row]) -> Drafter:
    if mode == "prompt look-up":
        return Lookup(PromptLookup(prompt_lookup_num_tokens=2, max_matching_ngram_size=2), rows)
    options = EarlyExit(early_exit=1, num_assistant_tokens=2, assistant_confidence_threshold=0.35)
    if mode == "early exit":
        return ByLayers(options, steps, rows)
    options = replace(options, num_assistant_tokens_schedule="heuristic")
    return ByModel(options, lambda own: Table(DRAFT, len(own)), rows, 100)


def law(params: GenerationParams) -> dict[tuple[int, ...], float]:
    """The probability of each whole output: chained up from what the filters leave after every past."""
    led, away = TARGET.log_softmax(-1), AWAY.log_softmax(-1)
    logits = away + params.guidance_scale * (led - away) if params.guided else TARGET
    sampler, found = Sampler([params], [0], V, CPU), dict[tuple[int, ...], float]()

    def follow(written: tuple[int, ...], chance: float, place: int) -> None:
        if len(written) == NEW or (written and written[-1] in params.ends):
            found[written] = chance
            return
        left = sampler.filter(logits[[place]], [Trace(PROMPT, written)])[0].softmax(-1)
        for token in range(V):
            follow((*written, token), chance * float(left[token]), place * V + 1 + token)

    follow((), 1.0, 0)
    return found


def written(mode: str, params: GenerationParams, seeds: range) -> tuple[list[tuple[int, ...]], float]:
    """What requests with these seeds give, and the share of their drafted tokens that stayed."""
    first = [Row(i, Request(PROMPT, replace(params, seed=seed))) for i, seed in enumerate(seeds[:: params.n])]
    rows = [one for row in first for one in params.strategy.spread(row)]
    steps: Any = Table(TARGET, len(rows), ahead=DRAFT)
    if params.guided:
        steps = Guided(Pair(len(rows)), [params.guidance_scale] * len(rows))
    drafted = accepted = 0
    for event in speculate(steps, rows, drafter(mode, steps, rows)):
        drafted, accepted = drafted + event.drafted, accepted + event.accepted
    return [row.trace.written for row in rows], accepted / drafted


def check(most: int, others: int) -> None:
    """``most`` draws of each mode under `all` filters, ``others`` under each of the other chains."""
    found = {}
    for first, ((name, changes), mode) in enumerate(itertools.product(FILTERS.items(), MODES)):
        draws = most if name == "all" else others
        params = GenerationParams(**{"max_new_tokens": NEW, "temperature": 1.0, **changes})
        expected = law(params)
        outputs, share = written(mode, params, range(first * most, first * most + draws))
        counts = Counter(outputs)
        assert set(counts) <= set(expected)
        assert 0.1 < share < 0.95, "some drafts stay and some don't"
        cells = list(expected)
        found[f"{mode}, {name}"] = p_value(
            torch.tensor([counts[cell] for cell in cells]), torch.tensor([expected[cell] for cell in cells])
        )
    assert not holm(found), found


def test_outputs_have_the_law_of_decoding_without_drafts() -> None:
    check(1_000, 1_000)


@pytest.mark.slow
def test_outputs_have_the_law_of_decoding_without_drafts_in_many_draws() -> None:
    check(100_000, 10_000)
