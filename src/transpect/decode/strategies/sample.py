"""Greedy decoding and sampling: one token after the other, never taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from transpect.base.devices import on_one_thread
from transpect.decode.alternatives import alternatives
from transpect.decode.sampling import Sampler
from transpect.decode.strategies.base import Strategy, going_on
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


def follow(steps: Steps, rows: Sequence[Row], logits: Tensor) -> Iterator[Event]:
    """Sample each row until it ends, from its next logits [B, V] on."""
    sampler = Sampler([row.params for row in rows], [row.seed for row in rows], steps.vocab_size, steps.device)
    while True:
        with torch.inference_mode(), on_one_thread():
            choice = sampler.choose(logits, [row.trace for row in rows])
            tops = alternatives(logits, [row.params for row in rows])
        chosen = zip(rows, choice.token.tolist(), choice.logprob.tolist(), tops, strict=True)
        events = [row.take(*taken) for row, *taken in chosen]
        yield from events
        left = going_on(rows, events)
        if not left:
            return
        token = choice.token
        if len(left) < len(rows):
            rows, sampler, token = [rows[place] for place in left], sampler.rows(left), token[left]
            steps.select(left)
        logits = steps.advance(token)
