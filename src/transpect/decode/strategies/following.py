"""One token after the other, by whatever the rows ask for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from transpect.base.devices import on_one_thread
from transpect.decode.alternatives import alternatives
from transpect.decode.sampling import Sampler
from transpect.decode.strategies.base import going_on

if TYPE_CHECKING:
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps


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
