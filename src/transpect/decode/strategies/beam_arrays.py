"""Beam searches of a batch as arrays: what `beam_batch` does by objects, for requests that ask for no more than the
best continuations.

Axes: N rows of the model, one for each beam that runs; G searches, V vocabulary, T most new tokens.

All searches of a batch have written as many tokens. The choice is one pass of compiled code over the logits
(`transpect.runtime.choosing`), in Python there is work for outputs that end and none for a beam that goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from transpect.base.devices import on_one_thread
from transpect.decode.sampling import LONG, Sampler, totalled
from transpect.decode.strategies.beam_hypotheses import Beams, outputs
from transpect.decode.strategies.beam_ranking import worth
from transpect.decode.trace import FREE, Trace

if TYPE_CHECKING:
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps
    from transpect.runtime.choosing import Continued

Array = Any


def suits(rows: Sequence[Row], logits: Tensor, beams: Beams) -> bool:
    """Whether these searches can be arrays, and their vocabulary is long enough for that to be quicker."""
    return logits.shape[-1] >= LONG and possible(rows, logits, beams)


def possible(rows: Sequence[Row], logits: Tensor, beams: Beams) -> bool:
    """Whether nothing is drawn, looked for in text or reported besides the tokens, nor are there groups."""
    plain = logits.device.type == "cpu" and logits.dtype == torch.float32 and beams.groups == 1
    return plain and all(
        row.params.greedy and not row.params.stop and not row.params.logprobs and row.trace.constraint is FREE
        for row in rows
    )


class _Beams:
    """What runs.

    Attributes:
        owners: [N], the request that each beam belongs to; those of one stand together.
        totals: float64 [N], the sum of each beam's log-probabilities.
        written: [N, T], the tokens of each.
        logprobs: float32 [N, T], of each by the model itself.
    """

    def __init__(self, count: int, longest: int) -> None:
        self.owners, self.totals = np.arange(count), np.zeros(count)
        self.written, self.logprobs = np.zeros((count, longest), np.int64), np.zeros((count, longest), np.float32)
        self.length = 0

    def go_on(self, following: Continued, searches: Array, logprobs: Array) -> None:
        """By a token each; ``searches`` [M] says whose each is."""
        self.owners, self.totals = searches, following.total
        self.written, self.logprobs = self.written[following.row], self.logprobs[following.row]
        self.written[:, self.length], self.logprobs[:, self.length] = following.token, logprobs
        self.length += 1

    def keep(self, some: Array) -> None:
        """Go on with some of them alone."""
        self.owners, self.totals = self.owners[some], self.totals[some]
        self.written, self.logprobs = self.written[some], self.logprobs[some]


def decode(steps: Steps, rows: Sequence[Row], beams: Beams, logits: Tensor) -> Iterator[Event]:
    """`beam_batch.decode` from the logits of the prompts [B, V] on, where that is `possible`."""
    everyone = Sampler([row.params for row in rows], [row.seed for row in rows], steps.vocab_size, steps.device)
    limits = np.array([row.params.max_new_tokens for row in rows])
    most = max(len(row.params.ends) for row in rows)
    padded = [[*row.params.ends, *[-1] * (most - len(row.params.ends))] for row in rows]
    ends = np.array(padded, np.int64).reshape(len(rows), most)
    found = {owner: beams.hypotheses(row) for owner, row in enumerate(rows)}
    running = _Beams(len(rows), int(limits.max()))
    choosing = _Choosing(rows, everyone, beams)
    while True:
        with torch.inference_mode(), on_one_thread():
            following, logprobs, ended = choosing.continuations(logits, running, list(found), ends, limits)
        live, before, at = list(found), running.length, following.found
        for n, (search, row, token, total) in enumerate(zip(*(column.tolist() for column in at), strict=True)):
            written = (*running.written[row, :before].tolist(), token)
            own = (*running.logprobs[row, :before].tolist(), float(ended[n]))
            found[live[search]].add(total, written, own)
        running.go_on(following, np.repeat(live, following.counts), logprobs)
        parents, first = following.row, 0
        over = set[int]()
        for owner, count in zip(live, following.counts.tolist(), strict=True):
            going = count and running.length < limits[owner]
            if found[owner].complete(float(following.total[first]) if going else None, running.length):
                over.add(owner)
                yield from outputs(rows[owner], found.pop(owner))
            first += count
        over |= {owner for owner in found if rows[owner].cancelled}
        found = {owner: own for owner, own in found.items() if owner not in over}
        if not found:
            return
        if over:
            some = ~np.isin(running.owners, list(over))
            running.keep(some)
            parents = parents[some]
        places = parents.tolist()
        if places != list(range(len(logits))):
            steps.select(places)
        logits = steps.advance(torch.from_numpy(running.written[:, running.length - 1]))


class _Choosing:
    """From logits to what goes on."""

    def __init__(self, rows: Sequence[Row], everyone: Sampler, beams: Beams) -> None:
        self._rows, self._everyone, self._beams = rows, everyone, beams
        self._rules = None if beams.renormalize_logits else everyone.rules
        self._owners: list[int] = []
        self._sampler = everyone
        self._none = np.zeros((0, everyone.vocab_size), np.bool_)

    def continuations(
        self, logits: Tensor, running: _Beams, live: Sequence[int], ends: Array, limits: Array
    ) -> tuple[Continued, Array, Array]:
        """What goes on and what ends, and of both the log-probabilities by the model itself."""
        from transpect.runtime.choosing import go_on

        wide, less = (own.numpy() for own in totalled(logits))
        k = min(self._beams.size + ends.shape[1], logits.shape[-1])
        tokens, values = self._best(logits, wide, less, running, k)
        firsts = np.searchsorted(running.owners, [*live, len(self._rows)])
        last = running.length + 1 == limits[live]
        following = go_on(tokens, values, running.totals, firsts, ends[live], last, self._beams.size)
        _, row, token, _ = following.found
        logprobs = [
            wide[rows, tokens] - less[rows] for rows, tokens in ((following.row, following.token), (row, token))
        ]
        return following, logprobs[0], logprobs[1]

    def _best(self, logits: Tensor, wide: Array, less: Array, running: _Beams, k: int) -> tuple[Array, Array]:
        """The k best tokens of each row and what they add to its sum."""
        from transpect.runtime.choosing import best_of_rows

        owners = running.owners
        if self._rules is not None:  # all that is done to the logits is to ban some
            early = self._rules.early([running.length] * len(self._rows), [len(row.trace.prompt) for row in self._rows])
            banned = self._rules.taken_out(early)[0]
            mask = self._none if banned is None else banned.numpy()
            tokens, values = best_of_rows(wide, less, mask, owners, k)
            if bool((values[:, 0] > -np.inf).all()):
                return tokens, values
        pasts = [self._past(*own) for own in zip(owners.tolist(), running.written[:, : running.length], strict=True)]
        if owners.tolist() != self._owners:
            self._owners = owners.tolist()
            self._sampler = self._everyone.rows(self._owners)
        logprobs = torch.from_numpy(wide - less[:, None])
        scores = worth(logprobs, pasts, self._sampler, renormalize=self._beams.renormalize_logits)
        return best_of_rows(scores.numpy(), np.zeros_like(less), self._none, owners, k)

    def _past(self, owner: int, written: Array) -> Trace:
        past = self._rows[owner].trace
        return Trace(past.prompt, tuple(written.tolist()), past.constraint, past.source)
