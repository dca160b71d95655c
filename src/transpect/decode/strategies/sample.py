"""Greedy decoding and sampling: one token after the other, never taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from transpect.decode.strategies.base import Strategy
from transpect.decode.strategies.following import follow
from transpect.decode.strategies.prompt_lookup import Spare
from transpect.decode.strategies.speculative import speculate

if TYPE_CHECKING:
    from transpect.core import ModelConfig
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps


@dataclass(frozen=True)
class Sample(Strategy):
    """Each token is drawn from what the filters leave; at ``temperature=0`` that is the best one. ``n`` outputs have
    the seeds seed, seed + 1, …

    Where a pass reads a few rows at about the price of one, and each as it would alone (`Steps.spare`), tokens are
    guessed from what was there before. They stay where they are the ones that would be chosen anyway, so they change
    nothing but the time; ``prompt_lookup_num_tokens=0`` never guesses.
    """

    resumes: ClassVar[bool] = True

    def width(self, params: GenerationParams) -> int:
        """See `Strategy.width`."""
        return 1

    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """See `Strategy.check`."""

    def spread(self, row: Row) -> list[Row]:
        """See `Strategy.spread`."""
        return [row.twin(choice, seed=row.seed + choice) for choice in range(row.params.n)]

    def decode(self, steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
        """See `Strategy.decode`."""
        if steps.spare > 1:
            return speculate(steps, rows, Spare(steps.spare, rows))
        return follow(steps, rows, steps.prefill())
