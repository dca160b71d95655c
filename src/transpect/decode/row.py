"""A request on its way: what it has written, and what the next token means for it."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from transpect.base.errors import GenerationError
from transpect.decode.alternatives import Top
from transpect.decode.request import Event, FinishReason, Request
from transpect.decode.sampling import around
from transpect.decode.text import TextStream, text_stream
from transpect.decode.trace import FREE, Constraint, Trace
from transpect.text.tokenizer import Tokenizer


class Row:
    """One output in a batch.

    Args:
        index: the place of its request in the list of requests.
        request: seeded; ``max_new_tokens`` fits the context.
        tokenizer: for text and stop strings.
        choice: which of the request's outputs it is, counted from 0.
        constraint: what the output must be like.
        cancelled: requests that nobody waits for any more; there may be more of them by and by.

    Raises:
        GenerationError: stop strings without a tokenizer, an output that has ended before.
    """

    def __init__(
        self,
        index: int,
        request: Request,
        tokenizer: Tokenizer | None = None,
        choice: int = 0,
        *,
        constraint: Constraint = FREE,
        cancelled: Set[int] = frozenset(),
    ) -> None:
        assert request.params.seed is not None, "a request is seeded before it is decoded"
        self.index, self.request, self.params, self.seed = index, request, request.params, request.params.seed
        self.choice = choice
        source = None if request.source is None else tuple(request.source)
        self.trace = Trace(tuple(request.prompt), tuple(request.written), constraint, source)
        self._tokenizer, self._cancelled = tokenizer, cancelled
        self._text = text_stream(tokenizer, request.prompt, request.params.stop)
        for token in request.written:
            self._text.push(token)
        if request.written and (self._text.stopped or constraint.complete(self.trace.written)):
            raise GenerationError(
                "only an output that has not ended can go on after a break",
                value=f"{len(request.written)} tokens written",
                remedy="Begin it anew, without `written`.",
            )

    def twin(self, choice: int, seed: int | None = None) -> Row:
        """Another output of the same request from its beginning, with the same seed or its own."""
        request, constraint = self.request, self.trace.constraint
        if seed is not None and seed != self.seed:
            request = replace(request, params=replace(self.params, seed=around(seed)))
        return Row(self.index, request, self._tokenizer, choice, constraint=constraint, cancelled=self._cancelled)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this output any more. It has then no events, and leaves its batch."""
        return self.index in self._cancelled

    def text(self) -> TextStream:
        """The text of this output from its beginning, for who tries what tokens would give."""
        return text_stream(self._tokenizer, self.request.prompt, self.params.stop)

    def take(self, token: int, logprob: float, top: Top = ()) -> Event:
        """Take the next token, its log-probability, and the most probable ones in its place."""
        self.trace = self.trace.then(token)
        if token in self.params.ends:
            return self._event(token, self._text.end(), logprob, "eos", top)
        delta, last = self._text.push(token), len(self.trace.written) == self.params.max_new_tokens
        complete = self.trace.constraint.complete(self.trace.written)
        if last or complete:
            # what was held may hold a whole stop string, now that nothing follows
            delta += self._text.end()
        if complete or self._text.stopped:
            return self._event(token, delta, logprob, "stop", top)
        return self._event(token, delta, logprob, "length" if last else None, top)

    def nothing(self) -> Event:
        """The only event of an output of no tokens."""
        return self._event(None, "", 0.0, "length")

    def _event(self, token: int | None, text: str, logprob: float, reason: FinishReason | None, top: Top = ()) -> Event:
        return Event(self.index, token, text, logprob, reason, choice=self.choice, seed=self.seed, top=top)
