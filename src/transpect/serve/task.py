"""A request that an engine has taken: checked, and made to lines that a scheduler knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from greenlet import greenlet
from torch import Tensor

from transpect.base.errors import ContextLengthError, GenerationError
from transpect.cache import Static
from transpect.core import Transformer
from transpect.decode import GenerationParams, Guided, Row, decode
from transpect.decode.alternatives import alternatives
from transpect.decode.fitting import constraint_of, fit
from transpect.decode.guidance import without
from transpect.decode.request import Event, Request
from transpect.decode.resuming import check_resumes
from transpect.decode.sampling import totalled
from transpect.decode.stepper import ReadsAhead
from transpect.serve.handle import Handle
from transpect.serve.plan import Entry, Line, most_blocks
from transpect.serve.reading import Reading
from transpect.serve.request import Job, PromptToken
from transpect.serve.runner import Whole
from transpect.serve.sizing import Size
from transpect.text import Tokenizer

FEW: Final = 256
"""Tokens of the longest prompt that is read by passes of few rows: in pieces that leave room for others these are
as quick."""


@dataclass(frozen=True)
class Asked:
    """What a job comes to.

    Attributes:
        rows: of the strategy.
        requests: what each row reads, and after them what guidance leads away from.
        lines: of the requests, those that differ.
        line_of: which line each request begins with.
        entry: for the scheduler.
        sources: of the requests, those that differ.
        new: tokens that each line goes on for at most.
    """

    rows: Sequence[Row]
    requests: Sequence[Request]
    line_of: Sequence[int]
    entry: Entry
    sources: Sequence[Sequence[int] | None]
    new: int

    def whole(self, line: Line) -> Whole:
        """What a line is read with in one piece."""
        return Whole(self.sources[line.source], line.whole + self.new)


def asked(job: Job, number: int, model: Transformer, tokenizer: Tokenizer | None, size: Size, salted: bool) -> Asked:
    """Check a job.

    Args:
        job: what is asked for; its request is seeded.
        number: in the order of arrival.
        model: that is to serve it.
        tokenizer: of the model.
        size: of the engine.
        salted: whether beginnings of the prompt may be kept for others of the tenant.

    Raises:
        GenerationError, ContextLengthError, ConfigError: as `transpect.decode.stream`; a request that has more
            sequences than the engine, or needs more memory than it has.
    """
    config, kind = model.config, Static(size.context)
    request = fit(config, job.request, kind)
    check_resumes(request, config, kind)
    first = Row(0, request, tokenizer, constraint=constraint_of(config, request, tokenizer))
    rows = request.params.strategy.spread(first)
    requests = [row.request for row in rows]
    requests += without(requests)
    in_one_piece = config.encoder is not None or config.last.looks_ahead(prefix=True)
    starts = [_start(own, 0 if in_one_piece else _many(own)) for own in requests]
    known = list(dict.fromkeys(starts))
    line_of = [known.index(own) for own in starts]
    width = request.params.strategy.width(request.params)
    new = request.params.max_new_tokens - len(request.written)
    counts = Counter(starts)
    sources = list(dict.fromkeys(source for _, source, _ in known))
    lines = [
        Line(list(read), len(read) - 1, len(read) if in_one_piece else 0, many, sources.index(source))
        for read, source, many in known
    ]
    each = [(len(own[0]), counts[own] * width) for own in known]
    entry = Entry(
        number,
        lines,
        rows=width * len(requests),
        blocks=most_blocks(each, new, size.block),
        cost=sum(length + count * new for length, count in each),
        tenant=job.tenant,
        priority=job.priority,
        salt=job.tenant if salted and not in_one_piece else None,
    )
    if entry.rows > size.rows:
        raise GenerationError(
            f"a request may have at most {size.rows} sequences at a time",
            value=entry.rows,
            remedy="Ask for fewer outputs or beams.",
        )
    if entry.blocks > size.blocks:
        raise ContextLengthError(
            f"a request must fit the engine's cache of {size.blocks * size.block} tokens",
            value=f"{entry.blocks * size.block} for all its outputs or beams",
            remedy="Ask for fewer of them, or for fewer tokens.",
        )
    return Asked(rows, requests, line_of, entry, sources, new)


class Task:
    """A request that runs as a coroutine: where its strategy would wait for the model it hands over, and goes on when
    the hub comes back.

    Strategies are ordinary code that calls `Steps`; a greenlet keeps their stack while others run. Generators or
    ``async`` would have to be written into every strategy and everything that one calls; threads would cost a switch
    of the system and a lock for each token of each request.

    Args:
        handle: where the events go.
        asked: what is to be done.
        steps: makes what the strategy reads from, of what hands over.
    """

    def __init__(
        self, handle: Handle, asked: Asked, steps: Callable[[Callable[[], None], Echo | None], ReadsAhead]
    ) -> None:
        self.handle, self.asked, self.entry = handle, asked, asked.entry
        self.error: Exception | None = None
        self.echo = Echo(asked.requests[0]) if handle.job.echo else None
        self._greenlet = greenlet(self._run)
        self.steps = steps(self._hand_over, self.echo)

    @property
    def begun(self) -> bool:
        """Whether it has run."""
        return bool(self._greenlet) or self.over

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return bool(self._greenlet.dead)

    def go_on(self) -> None:
        """Run until it waits again, or has ended. Who takes its events is to be woken afterwards."""
        self._greenlet.switch()

    def kill(self) -> None:
        """End it where it is."""
        self._greenlet.throw()

    def void(self) -> None:
        """What it was given since it last ran will come again."""
        if isinstance(self.steps, Reading):
            self.steps.void()

    def _hand_over(self) -> None:
        parent = self._greenlet.parent
        assert parent is not None, "the hub"
        parent.switch()

    def _run(self) -> None:
        try:
            for event in self._events():
                self.handle.put(event)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """One request has failed, and no other."""
        self.error = error

    def _events(self) -> Iterator[Event]:
        rows, requests = self.asked.rows, self.asked.requests
        guided = len(requests) > len(rows)
        steps: ReadsAhead = self.steps
        if guided:
            steps = Guided(steps, [row.params.guidance_scale for row in rows])
        if not rows[0].params.max_new_tokens:
            steps.prefill()  # for its echo
            # as many as are asked for: those of a beam search, or the best of several, begin as one row
            events: Iterator[Event] = (rows[0].twin(choice).nothing() for choice in range(rows[0].params.n))
        else:
            events = decode(steps, rows)
        for event in events:
            if self.echo is not None and not self.handle.prompt:
                self.handle.echo(self.echo.tokens())
            yield event


class Echo:
    """What the model thinks of a prompt, while its logits come in pieces."""

    def __init__(self, request: Request) -> None:
        self._ids, self._params = list(request.read), request.params
        self._found: dict[int, PromptToken] = {}

    def __call__(self, place: int, logits: Tensor) -> None:
        """Logits [R, V] after the token at a place and those that follow it."""
        followed = self._ids[place + 1 : place + 1 + len(logits)]
        if followed:
            own = logits[: len(followed)]
            wide, total = totalled(own)
            chosen = wide.gather(-1, torch.tensor(followed)[:, None])[:, 0] - total
            tops = alternatives(own, [self._params] * len(own))
            for n, (token, logprob, top) in enumerate(zip(followed, chosen.tolist(), tops, strict=True)):
                self._found[place + 1 + n] = PromptToken(token, logprob, top)

    def tokens(self) -> tuple[PromptToken, ...]:
        """All of the prompt."""
        return (PromptToken(self._ids[0]), *(self._found[n] for n in range(1, len(self._ids))))


def nothing(params: GenerationParams, job: Job) -> bool:
    """Whether a request is over before it has read anything."""
    return not params.max_new_tokens and not job.echo


def seeded(job: Job) -> Job:
    """The same job whose request has a seed."""
    return replace(job, request=job.request.seeded())


def _start(request: Request, many: int) -> tuple[tuple[int, ...], tuple[int, ...] | None, int]:
    return tuple(request.read), None if request.source is None else tuple(request.source), many


def _many(request: Request) -> int:
    """How many tokens are read by passes of many rows. It is up to the prompt alone: what a request gets must not
    depend on how busy the engine is, nor on whether the request goes on after a break."""
    return len(request.prompt) if len(request.prompt) > FEW else 0
