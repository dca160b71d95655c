"""A batch of beam searches on their way through a model.

Axes: N rows of the model, one for each beam that runs; V vocabulary; k continuations.

Each request has groups of beams (one, but for diverse beam search), and each group its own hypotheses. A request starts
with the one row of its prompt, which all its groups share; from then on the model's batch holds exactly the beams that
run, and a request that is decided leaves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from transpect.decode.alternatives import Top, alternatives
from transpect.decode.sampling import Sampler, totalled
from transpect.decode.strategies import beam_arrays
from transpect.decode.strategies.beam_hypotheses import Beams, outputs
from transpect.decode.strategies.beam_ranking import best, drawn, lowered, worth
from transpect.decode.text import TextStream
from transpect.decode.trace import Trace

if TYPE_CHECKING:
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps


class _Beam(NamedTuple):
    """A beginning of an output: the model's row that has read it, the sum of its log-probabilities, its past."""

    place: int
    total: float
    trace: Trace
    logprobs: tuple[float, ...] = ()
    tops: tuple[Top, ...] = ()
    text: TextStream | None = None  # where there are stop strings


class _Continuation(NamedTuple):
    """One more token of a beam."""

    total: float
    beam: int
    token: int
    logprob: float  # by the model itself


class _Group:
    """Beams of one request that compete, and the outputs that they have become."""

    def __init__(self, row: Row, first: _Beam, beams: Beams) -> None:
        params = row.params
        self.row, self.size, self.ends = row, beams.size, frozenset(params.ends)
        self.beams, self.over = [first], False
        self.found = beams.hypotheses(row)

    @property
    def written(self) -> int:
        """How many tokens each of its beams has."""
        return len(self.beams[0].trace.written)

    @property
    def draws(self) -> int:
        """How many continuations are ranked: so many that ``size`` of them go on, whichever of the others are EOS."""
        return max(2, 1 + len(self.ends)) * self.size

    @property
    def reach(self) -> int:
        """How many continuations of one beam can matter: all but ``size`` of its best may be EOS."""
        any_ends = self.row.params.stop or self.row.params.constraint
        return self.draws if any_ends else self.size + len(self.ends)

    def take(self, ranked: Iterable[_Continuation], tops: Sequence[Top], before: Sequence[_Group]) -> None:
        """Go on by a token.

        Args:
            ranked: continuations, best first; of equal sums the earlier beam and the lower id come first.
            tops: the most probable tokens of each row of the model.
            before: the groups of this request that have gone on; what they have found is passed over.
        """
        length = self.written + 1
        last, rank, going_on = length == self.row.params.max_new_tokens, 0, list[_Beam]()
        known = {one.tokens for group in before for one in group.found}
        for total, number, token, logprob in ranked:
            if rank >= self.size and len(going_on) == self.size:
                break
            beam = self.beams[number]
            trace = beam.trace.then(token)
            if trace.written in known:
                continue
            text = _followed(beam.text, token)
            logprobs, own = (*beam.logprobs, logprob), (*beam.tops, tops[beam.place])
            stopped = trace.constraint.complete(trace.written) or (text is not None and text.stopped)
            ends = token in self.ends or stopped
            if (ends or last) and rank < self.size:
                self.found.add(total, trace.written, logprobs, own)
            if not ends and len(going_on) < self.size:
                going_on.append(_Beam(beam.place, total, trace, logprobs, own, text))
            rank += 1
        self.beams = going_on
        self.over = self.found.complete(going_on[0].total if going_on and not last else None, length)


class _Search:
    """One request: its groups, in the order in which they choose."""

    def __init__(self, row: Row, place: int, beams: Beams) -> None:
        self.row = row
        first = _Beam(place, 0.0, row.trace, text=row.text() if row.params.stop else None)
        self.groups = [_Group(row, first, beams) for _ in range(beams.groups)]

    @property
    def running(self) -> list[_Group]:
        """The groups that are not over."""
        return [group for group in self.groups if not group.over]

    def outputs(self) -> Iterator[Event]:
        """The best outputs of all groups, best first, each token by token."""
        return outputs(self.row, (one for group in self.groups for one in group.found))


def decode(steps: Steps, rows: Sequence[Row], beams: Beams) -> Iterator[Event]:
    """Search for all rows together; the outputs of a row come when its search is over.

    Args:
        steps: at the beginning, with a row for each of ``rows``.
        rows: each asks for at least one token, and for no more outputs than there are beams.
        beams: how.

    Raises:
        GenerationError: logits that are no numbers.
    """
    logits = steps.prefill()
    if beam_arrays.suits(rows, logits, beams):
        yield from beam_arrays.decode(steps, rows, beams, logits)
    else:
        yield from by_objects(steps, rows, beams, logits)


def by_objects(steps: Steps, rows: Sequence[Row], beams: Beams, logits: Tensor) -> Iterator[Event]:
    """`decode` of everything that can be asked for, from the logits of the prompts [B, V] on."""
    everyone = Sampler([row.params for row in rows], [row.seed for row in rows], steps.vocab_size, steps.device)
    searches = {owner: _Search(row, owner, beams) for owner, row in enumerate(rows)}
    owners, sampler = list(searches), everyone  # the searches that the model's rows belong to
    while True:
        with torch.inference_mode():
            _go_on(logits, searches.values(), sampler, beams)
        for owner in [owner for owner, search in searches.items() if not search.running]:
            yield from searches.pop(owner).outputs()
        searches = {owner: search for owner, search in searches.items() if not search.row.cancelled}
        if not searches:
            return
        running = [(owner, group) for owner, search in searches.items() for group in search.running]
        places = [beam.place for _, group in running for beam in group.beams]
        if places != list(range(len(owners))):
            steps.select(places)
        previous, owners = owners, [owner for owner, group in running for _ in group.beams]
        if owners != previous:
            sampler = everyone.rows(owners)
        numbered = iter(range(len(owners)))
        for _, group in running:
            group.beams = [beam._replace(place=next(numbered)) for beam in group.beams]
        tokens = [beam.trace.written[-1] for _, group in running for beam in group.beams]
        logits = steps.advance(torch.tensor(tokens, device=steps.device))


def _go_on(logits: Tensor, searches: Iterable[_Search], sampler: Sampler, beams: Beams) -> None:
    """All searches by a token."""
    pasts = {beam.place: beam.trace for search in searches for group in search.running for beam in group.beams}
    wide, total = totalled(logits)
    logprobs = wide - total[:, None]  # [N, V]
    tops = alternatives(logits, sampler.params)
    scores = worth(
        logprobs, [pasts[place] for place in range(len(pasts))], sampler, renormalize=beams.renormalize_logits
    )
    for turn in range(beams.groups):
        running = [search for search in searches if not search.groups[turn].over]
        ranked = _ranked(scores, logprobs, running, turn, beams.diversity_penalty)
        for search, own in zip(running, ranked, strict=True):
            search.groups[turn].take(own, tops, search.groups[:turn])


def _ranked(
    scores: Tensor, logprobs: Tensor, searches: Sequence[_Search], turn: int, penalty: float
) -> Iterator[Iterable[_Continuation]]:
    """For each search the continuations that may matter to its group of this turn, best first.

    Args:
        scores: what each token adds, [N, V].
        logprobs: by the model itself, [N, V].
    """
    if not searches:
        return
    groups = [search.groups[turn] for search in searches]
    places = [beam.place for group in groups for beam in group.beams]
    if turn or places != list(range(len(scores))):
        scores, logprobs = scores[places], logprobs[places]
    ends = list(accumulate((len(group.beams) for group in groups), initial=0))
    for search, group, (first, end) in zip(searches, groups, pairwise(ends), strict=True):
        chosen = Counter(
            beam.trace.written[-1]
            for other in search.groups[:turn]
            for beam in other.beams
            if len(beam.trace.written) > group.written
        )
        if chosen:
            lowered(scores[first:end], chosen, penalty)
    totals = torch.tensor([beam.total for group in groups for beam in group.beams], dtype=torch.float64)[:, None]
    values, tokens = best(scores, max(group.reach for group in groups) + turn * groups[0].size)
    tokens, order = tokens.sort(-1)  # in each row by id, so that of equal sums the lower one comes first
    sums = (totals + values.gather(-1, order).cpu()).numpy()
    table = sums, tokens.cpu().numpy(), logprobs.gather(-1, tokens).cpu().numpy()
    for group, (first, end) in zip(groups, pairwise(ends), strict=True):
        if group.row.params.greedy:
            yield _sorted(*(column[first:end] for column in table))
        else:
            own = totals[first:end].to(scores.device) + scores[first:end]
            at = drawn(own, group.draws, seed=group.row.seed, step=group.written)
            yield sorted(
                (
                    _Continuation(float(own[number, token]), number, token, float(logprobs[first + number, token]))
                    for number, token in at
                ),
                key=lambda one: (-one.total, one.beam, one.token),
            )


def _sorted(sums: Any, tokens: Any, logprobs: Any) -> Iterator[_Continuation]:
    """Continuations [beams, k] that are possible, best first. They are made one by one, since few are looked at."""
    falling = -sums.ravel()
    order = falling.argsort(kind="stable")[: np.count_nonzero(falling < np.inf)]
    beams = order // tokens.shape[-1]
    columns = (column.ravel()[order].tolist() for column in (sums, tokens, logprobs))
    for total, beam, token, logprob in zip(next(columns), beams.tolist(), *columns, strict=True):
        yield _Continuation(total, beam, token, logprob)


def _followed(text: TextStream | None, token: int) -> TextStream | None:
    if text is not None:
        text = text.fork()
        text.push(token)
    return text
