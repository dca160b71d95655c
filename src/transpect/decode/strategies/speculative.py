"""Speculative decoding: something cheap drafts tokens, one pass of the model judges them all.

Axes: B rows, k most drafted tokens of a row, R tokens to choose in one pass, N drafted tokens, V vocabulary.

What comes out is distributed as without drafts, with every filter, minimum, ban and constraint, and at temperature 0 it
is the same tokens. A token's noise belongs to its place in the output: one number for its draft, one for whether that
stays, one for what is drawn otherwise. Whether a token was drafted depends on those before it alone, so a request gets
the same tokens whatever else is in its batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from transpect.base.devices import on_one_thread
from transpect.decode.alternatives import Top, alternatives
from transpect.decode.checks import check
from transpect.decode.filters.options import is_whole
from transpect.decode.sampling import Sampler, totalled, uniform
from transpect.decode.strategies.acceptance import left_over, stays, stream
from transpect.decode.strategies.base import Strategy, going_on

if TYPE_CHECKING:
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps
    from transpect.decode.trace import Trace


_SAMPLERS = 64
"""How many samplers of different numbers of tokens are kept."""


def at_least_one(name: str, value: Any) -> None:
    """Refuse an option that is not a whole number from 1.

    Raises:
        GenerationError: it is not.
    """
    check(is_whole(value) and value >= 1, f"{name} must be a whole number from 1", value, "Leave it out for none.")


def after(row: Row, past: Trace, token: int) -> Trace | None:
    """The past after one more token; None where the output ends with it, so that no constraint knows what follows."""
    if token in row.params.ends:
        return None
    further = past.then(token)
    return None if past.constraint.complete(further.written) else further


@dataclass(frozen=True)
class Drafts:
    """What may come next in each row.

    Attributes:
        tokens: of each row those that follow its last one; any number, none too.
        law: [N, V] logits of what each was drawn from: the first tokens of all rows that have one, the second ones, and
            so on. None: nothing was drawn, a token is a guess.
    """

    tokens: Sequence[Sequence[int]]
    law: Tensor | None = None

    @property
    def places(self) -> list[tuple[int, int]]:
        """(row, place in its draft) of each token, in the order of ``law``."""
        longest = max(map(len, self.tokens), default=0)
        return [(row, place) for place in range(longest) for row, own in enumerate(self.tokens) if len(own) > place]


class Drafter(Protocol):
    """Where drafts come from."""

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Drafts:
        """Tokens that may follow what each row has written, at most so many. Each row has written at least one."""

    def settle(self, accepted: Sequence[int]) -> None:
        """So many tokens of each row's draft stay; the others are not part of its past."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order."""


class Speculative(Strategy):
    """What drafts, and how many tokens."""

    @property
    def takes_back(self) -> bool:
        """See `Strategy.takes_back`."""
        return True

    def width(self, params: GenerationParams) -> int:
        """See `Strategy.width`."""
        return 1

    def spread(self, row: Row) -> list[Row]:
        """See `Strategy.spread`."""
        return [row.twin(choice, seed=row.seed + choice) for choice in range(row.params.n)]

    @abstractmethod
    def drafter(self, steps: Steps, rows: Sequence[Row]) -> Drafter:
        """What drafts for these rows, which have written nothing yet; ``steps`` reads them for the model."""

    def decode(self, steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
        """See `Strategy.decode`."""
        return speculate(steps, rows, self.drafter(steps, rows))


def speculate(steps: Steps, rows: Sequence[Row], drafter: Drafter) -> Iterator[Event]:
    """Decode one batch with drafts from ``drafter``; see `Strategy.decode`."""
    sampler = Sampler([row.params for row in rows], [row.seed for row in rows], steps.vocab_size, steps.device)
    repeated = _Repeated(sampler)
    with torch.inference_mode():
        logits = steps.prefill()
        choice = sampler.choose(logits, [row.trace for row in rows])
        begins = alternatives(logits, sampler.params)
    chosen = zip(rows, choice.token.tolist(), choice.logprob.tolist(), begins, strict=True)
    last = [row.take(*taken) for row, *taken in chosen]
    yield from last
    while left := going_on(rows, last):
        if len(left) < len(rows):
            rows, sampler = [rows[place] for place in left], sampler.rows(left)
            repeated = _Repeated(sampler)
            steps.select(left)
            drafter.select(left)
        with torch.inference_mode():
            drafts = drafter.draft(rows, [row.params.max_new_tokens - len(row.trace.written) - 1 for row in rows])
            verdict = _pass(steps, rows, repeated, drafts)
            drafter.settle(verdict.accepted)
        last = []
        for row, own, news, tops in zip(rows, drafts.tokens, verdict.news, verdict.tops, strict=True):
            for place, ((token, logprob), top) in enumerate(zip(news, tops, strict=True)):
                event = replace(
                    row.take(token, logprob, top),
                    drafted=0 if place else len(own),
                    accepted=place < len(news) - 1,
                )
                yield event
                if event.finish_reason is not None:
                    break
            last.append(event)


class _Repeated:
    """A sampler of rows that each choose several tokens at once. What it makes is used again."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._made: dict[tuple[int, ...], Sampler] = {}

    def times(self, counts: Sequence[int]) -> Sampler:
        """Each row so many times."""
        key = tuple(counts)
        if key not in self._made:
            if len(self._made) == _SAMPLERS:
                self._made.clear()
            self._made[key] = self._sampler.rows([row for row, count in enumerate(counts) for _ in range(count)])
        return self._made[key]


@dataclass(frozen=True)
class _Verdict:
    """Of each row how many drafted tokens stay, and these with the one that follows, each with its log-probability, and
    the most probable ones in their places."""

    accepted: list[int]
    news: list[list[tuple[int, float]]]
    tops: Sequence[Sequence[Top]] = ()


def _pass(steps: Steps, rows: Sequence[Row], repeated: _Repeated, drafts: Drafts) -> _Verdict:
    """Read each row's last token and its draft, judge them, and forget those that don't stay."""
    counts = [len(own) for own in drafts.tokens]
    columns = max(counts) + 1
    tokens = torch.tensor(
        [
            [row.trace.written[-1], *own, *[0] * (columns - 1 - len(own))]
            for row, own in zip(rows, drafts.tokens, strict=True)
        ],
        device=steps.device,
    )  # [B, k + 1]
    column = torch.arange(columns, device=steps.device)
    even = min(counts) == max(counts)
    real = None if even else column <= torch.tensor(counts, device=steps.device)[:, None]
    logits = steps.extend(tokens, real)  # [B, k + 1, V]
    with on_one_thread():
        flat = logits.flatten(0, 1) if real is None else logits[real]  # [R, V]
        ahead = [past for row, own in zip(rows, drafts.tokens, strict=True) for past in _pasts(row, own)]
        virtual = repeated.times([count + 1 for count in counts])
        if drafts.law is None:
            verdict = _compare(flat, virtual, ahead, drafts)
        else:
            verdict = _judge(flat, virtual, ahead, drafts, drafts.law.to(flat.device))
        tops = alternatives(flat, virtual.params)
    if min(verdict.accepted) < columns - 1:
        steps.forget(column <= torch.tensor(verdict.accepted, device=steps.device)[:, None])
    firsts = accumulate((count + 1 for count in counts), initial=0)
    return replace(verdict, tops=[tops[at : at + len(own)] for at, own in zip(firsts, verdict.news, strict=False)])


def _pasts(row: Row, draft: Sequence[int]) -> Iterator[Trace]:
    """The past of each token to choose. Where the output ends with a drafted token, nothing is chosen after it: any
    past will do."""
    past = row.trace
    yield past
    for token in draft:
        past = after(row, past, token) or past
        yield past


def _compare(flat: Tensor, sampler: Sampler, pasts: Sequence[Trace], drafts: Drafts) -> _Verdict:
    """Choose every token as without drafts; a draft stays as far as it is what was chosen.

    For a token that was guessed and not drawn this is speculative sampling: it stays with probability p(x), and what is
    drawn otherwise is as p without x. So the tokens are those that the same seed gives without drafts.
    """
    choice = sampler.choose(flat, pasts)
    chosen = list(zip(choice.token.tolist(), choice.logprob.tolist(), strict=True))
    accepted, news, start = [], [], 0
    for own in drafts.tokens:
        here = chosen[start : start + len(own) + 1]
        start += len(own) + 1
        agreeing = next((i for i, token in enumerate(own) if token != here[i][0]), len(own))
        accepted.append(agreeing)
        news.append(here[: agreeing + 1])
    return _Verdict(accepted, news)


def _judge(flat: Tensor, sampler: Sampler, pasts: Sequence[Trace], drafts: Drafts, law: Tensor) -> _Verdict:
    """Let each drafted token stay with probability min(1, p/q), and draw another where one does not, or all do."""
    wide, total = totalled(flat)
    target = sampler.filter(wide, pasts)  # [R, V]
    first = [0]  # of each row its first place in R
    for own in drafts.tokens:
        first.append(first[-1] + len(own) + 1)
    entries = drafts.places
    of_target = [first[row] + place for row, place in entries]
    token = torch.tensor([drafts.tokens[row][place] for row, place in entries], device=flat.device)  # [N]
    noise = [uniform(stream(sampler.seeds[at], "accept"), len(pasts[at].written)) for at in of_target]
    chance = torch.tensor(noise, dtype=torch.float64, device=flat.device)
    accepted = [len(own) for own in drafts.tokens]
    refused: dict[int, int] = {}  # by row, its first place in N that does not stay
    for entry, good in enumerate(stays(target[of_target], law, token, chance).tolist()):
        row, place = entries[entry]
        if not good and row not in refused:
            refused[row], accepted[row] = entry, place
    at = [begin + count for begin, count in zip(first, accepted, strict=False)]  # [B]: what is drawn
    final = target[at].to(torch.float64)
    if refused:
        final[list(refused)] = left_over(final[list(refused)], law[list(refused.values())])
    drawn = sampler.rows(at).draw(final, [pasts[i] for i in at]).tolist()
    ids = [[*own[:count], end] for own, count, end in zip(drafts.tokens, accepted, drawn, strict=True)]
    reported = [begin + place for begin, own in zip(first, ids, strict=False) for place in range(len(own))]
    spelled = torch.tensor([token for own in ids for token in own], device=flat.device)
    logprobs = iter((wide[reported].gather(-1, spelled[:, None])[:, 0] - total[reported]).tolist())
    return _Verdict(accepted, [[(token, next(logprobs)) for token in own] for own in ids])
