"""What goes into decoding and what comes out of it, as plain values."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from transpect.decode.params import GenerationParams

FinishReason = Literal["eos", "stop", "length"]
"""Why an output ended: one of ``eos_ids`` was chosen, a stop string was found, or there was no room for more."""


@dataclass(frozen=True)
class Request:
    """What to continue.

    Attributes:
        prompt: ids that the decoder begins with, at least one; nothing is added to them. For an encoder–decoder this
            is its start token and whatever the answer is to begin with.
        params: how.
        source: ids that the encoder of an encoder–decoder reads.
    """

    prompt: Sequence[int]
    params: GenerationParams = field(default_factory=GenerationParams)
    source: Sequence[int] | None = None

    def seeded(self) -> Request:
        """The same request with a seed: its own, or one from the system's randomness."""
        if self.params.seed is not None:
            return self
        return replace(self, params=replace(self.params, seed=secrets.randbits(63)))


@dataclass(frozen=True)
class Event:
    """One token of one request.

    Attributes:
        request: which one, by its place in the list of requests.
        token: its id; None in the only event of a request for no tokens.
        text: what can be given out now. The texts of all events join to the output.
        logprob: log-probability of the token in nats, by the model itself, before temperature and filters.
        finish_reason: None until the last event of the request.
    """

    request: int
    token: int | None
    text: str = ""
    logprob: float = 0.0
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class Result:
    """The whole output of one request.

    Attributes:
        ids: the tokens that were chosen, a final EOS included.
        text: their text, without special tokens and up to a stop string; empty without a tokenizer.
        logprobs: of each token, as in `Event`.
        finish_reason: why it ended.
        seed: with this seed the same request gives the same tokens.
    """

    ids: tuple[int, ...]
    text: str
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    seed: int


def collect(events: Iterable[Event], requests: Sequence[Request]) -> list[Result]:
    """Put the events of seeded requests together, in the order of the requests."""
    found: list[list[Event]] = [[] for _ in requests]
    for event in events:
        found[event.request].append(event)
    return [_result(own, request) for own, request in zip(found, requests, strict=True)]


def _result(events: Sequence[Event], request: Request) -> Result:
    tokens = [(event.token, event.logprob) for event in events if event.token is not None]
    reason, seed = events[-1].finish_reason, request.params.seed
    assert reason is not None, "the last event of a request says why it ended"
    assert seed is not None, "a request is seeded before it is decoded"
    return Result(
        ids=tuple(token for token, _ in tokens),
        text="".join(event.text for event in events),
        logprobs=tuple(logprob for _, logprob in tokens),
        finish_reason=reason,
        seed=seed,
    )
