"""What goes into an engine and what it says of its work, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transpect.decode.alternatives import Top
from transpect.decode.request import Request

State = Literal["starting", "ready", "draining", "dead"]
"""Of an engine: it takes requests only when it is ready."""


@dataclass(frozen=True)
class Job:
    """A request and how it is to be served.

    Attributes:
        request: what to continue.
        priority: of two that wait the higher one begins first, and of two that run the lower one is put aside where
            memory is short. Waiting raises it by and by, so none waits for ever.
        tenant: whom it is for. Those who wait take turns by how much has been read for each, and one's prompts
            are never found in another's part of the prefix cache.
        deadline: when it is ended with `Expired`, in seconds of `time.monotonic`; None is never.
        echo: whether the log-probabilities of the prompt's own tokens are wanted (`Handle.prompt`), with as many
            alternatives as ``request.params.logprobs``.
    """

    request: Request
    priority: int = 0
    tenant: str = ""
    deadline: float | None = None
    echo: bool = False


@dataclass(frozen=True)
class Usage:
    """How many tokens a request took.

    Attributes:
        prompt_tokens: of the prompt, or of an encoder–decoder's source.
        completion_tokens: that were given out, of all outputs together.
        cached_tokens: of the prompt, those that were not read since the prefix cache had them.
    """

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass
class Times:
    """When something happened to a request, in seconds of `time.monotonic`; None where it has not.

    Attributes:
        submitted: it was taken.
        begun: its prompt began to be read.
        first_token: it gave out its first token.
        ended: it ended, whichever way.
    """

    submitted: float
    begun: float | None = None
    first_token: float | None = None
    ended: float | None = None


@dataclass(frozen=True)
class PromptToken:
    """What the model thought of a token of the prompt: ln P of it after those before it, and the most probable ones in
    its place. The first token has none."""

    token: int
    logprob: float | None = None
    top: Top = ()


@dataclass(frozen=True)
class Stats:
    """What an engine does and has done.

    Attributes:
        state: of the engine.
        running: requests that have begun and not ended.
        waiting: that have not begun, or were put aside.
        blocks_used: of the cache, those that requests hold.
        blocks_cached: those that hold only beginnings for requests to come; they are given up when asked for.
        blocks_total: all.
        block: tokens of a block.
        prefix_hits: tokens of prompts that the prefix cache had.
        prefix_queries: tokens of prompts that it was asked for.
        preemptions: how often a request was put aside for others.
        passes: of the model.
        tokens_read: by these passes, of prompts and outputs.
        tokens_written: that were given out.
        finished: requests that ended well.
        failed: that ended with an error.
        cancelled: that nobody waited for any more.
    """

    state: State
    running: int = 0
    waiting: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_total: int = 0
    block: int = 0
    prefix_hits: int = 0
    prefix_queries: int = 0
    preemptions: int = 0
    passes: int = 0
    tokens_read: int = 0
    tokens_written: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
