"""Best of several: draw more outputs than are wanted, and keep those that the model finds most probable a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import TYPE_CHECKING, ClassVar

from transpect.decode.checks import check
from transpect.decode.filters.options import is_whole
from transpect.decode.strategies.base import Strategy
from transpect.decode.strategies.following import follow

if TYPE_CHECKING:
    from transpect.core import ModelConfig
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps


@dataclass(frozen=True)
class BestOf(Strategy):
    """The ``n`` of ``best_of`` drawn outputs with the highest mean log-probability, best first.

        score = 1 / length · Σ ln p(token),

    where p is the model's own, before every filter, and length counts the new tokens, the one that ends the output
    included. The draws have the seeds seed, seed + 1, …; an output reports its own, and comes when all are drawn.

    Attributes:
        best_of: how many are drawn.
    """

    trigger: ClassVar[str] = "best_of"

    best_of: int = 4

    def __post_init__(self) -> None:
        check(
            is_whole(self.best_of) and self.best_of >= 1,
            "best_of must be a whole number from 1",
            self.best_of,
            "Pass 4.",
        )

    def width(self, params: GenerationParams) -> int:
        """See `Strategy.width`."""
        return self.best_of

    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """See `Strategy.check`."""
        check(
            params.n <= self.best_of,
            "n must not exceed best_of",
            f"n={params.n}, best_of={self.best_of}",
            f"Pass best_of={params.n}.",
        )
        check(
            not params.greedy or self.best_of == 1,
            "the best of several outputs needs outputs that differ",
            f"best_of={self.best_of} at temperature=0",
            "Pass temperature=1.",
        )

    def spread(self, row: Row) -> list[Row]:
        """See `Strategy.spread`."""
        return [row]

    def decode(self, steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
        """See `Strategy.decode`."""
        logits = steps.prefill()
        places = [place for place in range(len(rows)) for _ in range(self.best_of)]
        if self.best_of > 1:
            steps.select(places)
        draws = [row.twin(choice, seed=row.seed + choice) for row in rows for choice in range(self.best_of)]
        drawn: dict[int, list[list[Event]]] = {row.index: [[] for _ in range(self.best_of)] for row in rows}
        left = {row.index: self.best_of for row in rows}
        wanted = {row.index: row.params.n for row in rows}
        for event in follow(steps, draws, logits[places]):
            own = drawn[event.request]
            own[event.choice].append(event)
            left[event.request] -= event.finish_reason is not None
            if not left[event.request]:
                ranked = sorted(own, key=lambda events: -_mean(events))  # stable: of equal ones the first seed
                for choice, events in enumerate(ranked[: wanted[event.request]]):
                    yield from (replace(one, choice=choice) for one in events[:-1])
                    yield replace(events[-1], choice=choice, score=_mean(events))


def _mean(events: Sequence[Event]) -> float:
    return fsum(event.logprob for event in events) / len(events)
