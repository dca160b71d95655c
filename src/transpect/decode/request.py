"""What goes into decoding and what comes out of it, as plain values."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from transpect.decode.alternatives import Top
from transpect.decode.params import GenerationParams

FinishReason = Literal["eos", "stop", "length"]
"""Why an output ended: one of ``eos_ids`` was chosen; a stop string was found, or the output is a whole text of its
constraint, which nothing may follow; or there was no room for more."""


@dataclass(frozen=True)
class Request:
    """What to continue.

    Attributes:
        prompt: ids that the decoder begins with, at least one; nothing is added to them. For an encoder–decoder this
            is its start token and whatever the answer is to begin with.
        params: how; those that nobody states write what fits the context.
        source: ids that the encoder of an encoder–decoder reads.
        negative: what guidance leads away from (see `GenerationParams.guidance_scale`): ids in the place of the prompt,
            or of an encoder–decoder's source; None is its last token alone.
        written: ids of the output that were chosen before a break. The request goes on after them with the tokens that
            it would have had without one (see `check_resumes` for what can); they count as new tokens, and neither they
            nor their text are given out again.
        begun: how many of the last tokens of the prompt are the beginning of the output (a language that a checkpoint
            begins its translations with): they count in the length by which a beam search ranks.
    """

    prompt: Sequence[int]
    params: GenerationParams = field(default_factory=partial(GenerationParams, overflow="stop"))
    source: Sequence[int] | None = None
    negative: Sequence[int] | None = None
    written: Sequence[int] = ()
    begun: int = 0

    @property
    def read(self) -> tuple[int, ...]:
        """What the decoder reads before it chooses a token."""
        return (*self.prompt, *self.written)

    def seeded(self) -> Request:
        """The same request with a seed: its own, or one from the system's randomness."""
        if self.params.seed is not None:
            return self
        return replace(self, params=replace(self.params, seed=secrets.randbits(63)))


@dataclass(frozen=True)
class Event:
    """One token of one output.

    Attributes:
        request: which one, by its place in the list of requests.
        token: its id; None in the only event of an output of no tokens.
        text: what can be given out now. The texts of all events join to the output.
        logprob: log-probability of the token in nats, by the model itself, before temperature and filters.
        finish_reason: None until the last event of the output.
        choice: which of the request's outputs, by its place among them.
        seed: of the output.
        score: what its strategy ranked the output by, in its last event; None where there is no ranking.
        drafted: how many tokens were drafted for the pass that gave this one, in the first event of the pass.
        accepted: whether this token had been drafted.
        top: the most probable tokens in this place, as many as `GenerationParams.logprobs`.
    """

    request: int
    token: int | None
    text: str = ""
    logprob: float = 0.0
    finish_reason: FinishReason | None = None
    choice: int = 0
    seed: int = 0
    score: float | None = None
    drafted: int = 0
    accepted: bool = False
    top: Top = ()


@dataclass(frozen=True)
class Result:
    """One whole output of one request.

    Attributes:
        ids: the tokens that were chosen, a final EOS included.
        text: their text, without special tokens and up to a stop string; empty without a tokenizer.
        logprobs: of each token, as in `Event`.
        finish_reason: why it ended.
        seed: with this seed the same request gives the same tokens.
        choice: which of the request's outputs, by its place among them.
        score: as in `Event`.
        drafted: how many tokens were drafted, by a strategy that does so.
        accepted: how many of them stayed. Each other token took a pass of the model.
        top_logprobs: of each token the alternatives, as in `Event.top`; empty where none were asked for.
    """

    ids: tuple[int, ...]
    text: str
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    seed: int
    choice: int = 0
    score: float | None = None
    drafted: int = 0
    accepted: int = 0
    top_logprobs: tuple[Top, ...] = ()


def collect(events: Iterable[Event]) -> list[Result]:
    """Put the events of all outputs together, in the order of the requests and of the outputs of each."""
    found: dict[tuple[int, int], list[Event]] = {}
    for event in events:
        found.setdefault((event.request, event.choice), []).append(event)
    return [_result(found[key]) for key in sorted(found)]


def _result(events: Sequence[Event]) -> Result:
    tokens, last = [event for event in events if event.token is not None], events[-1]
    assert last.finish_reason is not None, "the last event of an output says why it ended"
    return Result(
        ids=tuple(event.token for event in tokens if event.token is not None),
        text="".join(event.text for event in events),
        logprobs=tuple(event.logprob for event in tokens),
        finish_reason=last.finish_reason,
        seed=last.seed,
        choice=last.choice,
        score=last.score,
        drafted=sum(event.drafted for event in events),
        accepted=sum(event.accepted for event in events),
        top_logprobs=tuple(event.top for event in tokens) if any(event.top for event in tokens) else (),
    )
