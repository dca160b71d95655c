"""The text of a request while its tokens come in."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Protocol, Self

from transpect.base.errors import GenerationError
from transpect.text.stopping import StopMatcher
from transpect.text.streaming import StreamDecoder
from transpect.text.tokenizer import Tokenizer


class TextStream(Protocol):
    """Tokens to pieces of text that are certain."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found: the output is over."""

    def push(self, token: int) -> str:
        """Take the next token; give out the text that surely stands before any stop string."""

    def end(self) -> str:
        """There are no more tokens: give out what was held."""

    def fork(self) -> Self:
        """A second stream that goes on from here by itself."""


class NoText:
    """For callers who want ids only."""

    stopped = False

    def push(self, token: int) -> str:
        return ""

    def end(self) -> str:
        return ""

    def fork(self) -> Self:
        return self


class DecodedText:
    """The text that stands after the prompt, up to the first stop string, without special tokens.

    The deltas join to what decoding prompt and output together has after the prompt; a vocabulary that writes a space
    as part of the next word (SentencePiece) keeps it so. U+FFFD comes only where the whole has it.

    Args:
        tokenizer: of the model.
        prompt: the ids before the output.
        stops: stop strings.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._decoder = StreamDecoder(tokenizer, skip_special_tokens=True)
        self._matcher = StopMatcher(stops)
        self._decoder.prime(prompt)

    @property
    def stopped(self) -> bool:
        """See `TextStream.stopped`."""
        return self._matcher.done

    def push(self, token: int) -> str:
        """See `TextStream.push`."""
        return self._matcher.push(self._decoder.push(token))

    def end(self) -> str:
        """See `TextStream.end`."""
        return self._matcher.push(self._decoder.flush()) + self._matcher.flush()

    def fork(self) -> Self:
        """See `TextStream.fork`."""
        return deepcopy(self, {id(self._tokenizer): self._tokenizer})


def text_stream(tokenizer: Tokenizer | None, prompt: Sequence[int], stops: Sequence[str]) -> TextStream:
    """The stream for one request.

    Raises:
        GenerationError: stop strings without a tokenizer to find them with.
    """
    if tokenizer is not None:
        return DecodedText(tokenizer, prompt, stops)
    if stops:
        raise GenerationError(
            "stop strings are found in text, which needs a tokenizer", value=list(stops), remedy="Pass tokenizer=."
        )
    return NoText()
