"""Drafts by a smaller model: how many tokens, drawn how, one after the other.

Axes: B rows, A rows that still draft, N drafted tokens, V vocabulary.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from transpect.decode.checks import check
from transpect.decode.filters.options import is_number
from transpect.decode.sampling import Sampler, totalled
from transpect.decode.strategies.acceptance import stream
from transpect.decode.strategies.speculative import Drafts, Speculative, after, at_least_one

if TYPE_CHECKING:
    from transpect.decode.row import Row
    from transpect.decode.stepper import Read

Schedule = Literal["constant", "heuristic"]


@dataclass(frozen=True, kw_only=True)
class Assisted(Speculative, ABC):
    """What all that draft by a model have in common.

    Attributes:
        num_assistant_tokens: how many tokens to draft at first, or always.
        num_assistant_tokens_schedule: ``constant``, or ``heuristic``: two more after a draft that stayed whole, one
            fewer, down to one, after another.
        assistant_confidence_threshold: draft no further than a token that the draft's model itself gives a lower
            probability; 0 never stops.
    """

    num_assistant_tokens: int = 20
    num_assistant_tokens_schedule: Schedule = "constant"
    assistant_confidence_threshold: float = 0.4

    def __post_init__(self) -> None:
        at_least_one("num_assistant_tokens", self.num_assistant_tokens)
        check(
            self.num_assistant_tokens_schedule in get_args(Schedule),
            f"num_assistant_tokens_schedule must be one of {', '.join(get_args(Schedule))}",
            self.num_assistant_tokens_schedule,
            "Leave it out for the default.",
        )
        check(
            is_number(self.assistant_confidence_threshold) and 0 <= self.assistant_confidence_threshold <= 1,
            "assistant_confidence_threshold must be a probability from 0 to 1",
            self.assistant_confidence_threshold,
            "0 never stops a draft early.",
        )


class Draftsman:
    """Draws drafts for rows, and keeps their pace.

    The noise of a draft is a stream of its own. What ends a draft is known before the token that is not drafted any
    more, as it must be: a token's law would change if its own value decided whether it is judged.

    Args:
        options: how many tokens.
        rows: those of the batch.
    """

    def __init__(self, options: Assisted, rows: Sequence[Row]) -> None:
        self._options = options
        self._params, self._seeds = [row.params for row in rows], [stream(row.seed, "draft") for row in rows]
        self._sampler: Sampler | None = None
        self._pace = [options.num_assistant_tokens for _ in rows]
        self.counts = [0 for _ in rows]

    def limits(self, most: Sequence[int]) -> list[int]:
        """How many tokens each row drafts next."""
        return [min(pair) for pair in zip(most, self._pace, strict=True)]

    def write(self, rows: Sequence[Row], limits: Sequence[int], first: Tensor, read: Read) -> Drafts:
        """Draft.

        Args:
            rows: those of the batch.
            limits: how many tokens at most.
            first: [B, V] logits of what follows each row.
            read: reads on, a token a row.
        """
        tokens: list[list[int]] = [[] for _ in rows]
        pasts, laws, logits = [row.trace for row in rows], list[Tensor](), first
        sampler = self._sampler or Sampler(self._params, self._seeds, first.shape[-1], first.device)
        self._sampler = sampler
        active = [row for row, limit in enumerate(limits) if limit]
        while active:
            whole = len(active) == len(rows)
            some, drawing = (logits, sampler) if whole else (logits[active], sampler.rows(active))  # [A, V]
            behind = [pasts[row] for row in active]
            if sampler.greedy:
                token = drawing.choose(some, behind).token
            else:
                laws.append(drawing.filter(totalled(some)[0], behind))
                token = drawing.draw(laws[-1], behind)
            going = []
            drawn = zip(active, token.tolist(), self._sure(some, token), strict=True)
            column = [0] * len(rows)
            for row, chosen, sure in drawn:
                column[row] = chosen
                tokens[row].append(chosen)
                further = after(rows[row], pasts[row], chosen)
                if further is not None and sure and len(tokens[row]) < limits[row]:
                    pasts[row] = further
                    going.append(row)
            active = going
            if active:
                real = None
                if len(active) < len(rows):
                    real = torch.zeros(len(rows), 1, dtype=torch.bool, device=first.device)
                    real[active] = True
                logits = read(torch.tensor(column, device=first.device)[:, None], real)[:, -1]
        self.counts = list(map(len, tokens))
        return Drafts(tokens, torch.cat(laws) if laws else None)

    def rest(self) -> Drafts:
        """No drafts this time."""
        self.counts = [0 for _ in self.counts]
        return Drafts([[] for _ in self.counts])

    def settle(self, accepted: Sequence[int]) -> None:
        """So many tokens of each row's draft stay."""
        if self._options.num_assistant_tokens_schedule == "heuristic":
            for row, (count, drafted) in enumerate(zip(accepted, self.counts, strict=True)):
                if drafted:
                    self._pace[row] = self._pace[row] + 2 if count == drafted else max(1, self._pace[row] - 1)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order."""
        self._params, self._seeds = [self._params[row] for row in rows], [self._seeds[row] for row in rows]
        self._sampler = None
        self._pace, self.counts = [self._pace[row] for row in rows], [self.counts[row] for row in rows]

    def _sure(self, logits: Tensor, token: Tensor) -> list[bool]:
        """Whether a draft goes on behind each token [A]."""
        if not self._options.assistant_confidence_threshold:
            return [True] * len(token)
        chance = logits.float().softmax(-1).gather(-1, token[:, None])[:, 0]
        sure: list[bool] = (chance >= self._options.assistant_confidence_threshold).tolist()
        return sure
