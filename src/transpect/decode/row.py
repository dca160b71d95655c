"""A request on its way: what it has written, and what the next token means for it."""

from __future__ import annotations

from transpect.decode.request import Event, Request
from transpect.decode.text import text_stream
from transpect.text.tokenizer import Tokenizer


class Row:
    """One request in a batch.

    Args:
        index: its place in the list of requests.
        request: seeded; ``max_new_tokens`` fits the context.
        tokenizer: for text and stop strings.

    Raises:
        GenerationError: stop strings without a tokenizer.
    """

    def __init__(self, index: int, request: Request, tokenizer: Tokenizer | None = None) -> None:
        assert request.params.seed is not None, "a request is seeded before it is decoded"
        self.index, self.request, self.params, self.seed = index, request, request.params, request.params.seed
        self.written = 0
        self._text = text_stream(tokenizer, request.prompt, request.params.stop)

    def take(self, token: int, logprob: float) -> Event:
        """Take the next token."""
        self.written += 1
        if token in self.params.ends:
            return Event(self.index, token, self._text.end(), logprob, "eos")
        delta, last = self._text.push(token), self.written == self.params.max_new_tokens
        if last:
            # what was held may hold a whole stop string, now that nothing follows
            delta += self._text.end()
        if self._text.stopped:
            return Event(self.index, token, delta, logprob, "stop")
        return Event(self.index, token, delta, logprob, "length" if last else None)

    def nothing(self) -> Event:
        """The only event of a request for no tokens."""
        return Event(self.index, None, finish_reason="length")
