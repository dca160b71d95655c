"""Log-probabilities of tokens, in the two forms that OpenAI's API has for them."""

from __future__ import annotations

from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from transpect.base.errors import TokenizerError
from transpect.decode import Event
from transpect.serve.request import PromptToken
from transpect.text import Tokenizer
from transpect.text.token_bytes import token_bytes

__all__ = ["Place", "Spelling", "shown"]

_LEAST: Final = -9999.0
"""Stands for minus infinity, which JSON does not have."""


def shown(events: Iterable[Event], ends: Sequence[int]) -> list[Event]:
    """The events whose tokens are told of: all but the one that ends an output and has no text."""
    return [own for own in events if own.token is not None and not (own.finish_reason == "eos" and own.token in ends)]


@dataclass
class Place:
    """Where the next token begins in a text; of those that share a character, where that does.

    Attributes:
        offset: in characters.
        at_start: whether the next token with a text is the first of one, where some tokenizers drop a space.
        decoder: of the bytes so far.
    """

    offset: int = 0
    at_start: bool = False
    decoder: IncrementalDecoder = field(default_factory=lambda: getincrementaldecoder("utf-8")("replace"))

    def take(self, raw: bytes) -> int:
        """Where a token of these bytes begins; the next one follows it."""
        begun, _ = self.decoder.getstate()
        broken = bool(begun) and not _goes_on(begun, raw[:1])  # which the text has as one character of its own
        begins = self.offset + broken
        self.offset += len(self.decoder.decode(raw))
        return begins


def _goes_on(begun: bytes, byte: bytes) -> bool:
    """Whether a byte belongs to a character that has begun."""
    try:
        getincrementaldecoder("utf-8")().decode(begun + byte)
    except UnicodeDecodeError:
        return False
    return True


class Spelling:
    """How the tokens of a model are spelled.

    Args:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._later: Sequence[bytes] = ()
        self._first: Sequence[bytes] = ()
        with suppress(TokenizerError):  # the text of a token depends on the next one
            self._later, self._first = token_bytes(tokenizer), token_bytes(tokenizer, at_start=True)

    def place(self, prompt: Sequence[int], *, echoed: bool = False) -> Place:
        """Where an output begins, or the prompt itself where it is told of."""
        return Place(at_start=echoed or self._tokenizer.special_ids.issuperset(prompt))

    def token(self, token: int, at_start: bool = False) -> tuple[str, list[int] | None]:
        """A token's text, and its bytes where it has some of its own."""
        (name,) = self._tokenizer.tokens([token])
        table = self._first if at_start else self._later
        raw = table[token] if token < len(table) else b""
        if not raw:
            return name, None
        try:
            return raw.decode("utf-8"), list(raw)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw), list(raw)

    def chat(self, events: Iterable[Event], place: Place) -> dict[str, Any]:
        """The form of conversations.

        Args:
            events: tokens of an output.
            place: in the text; it goes on with them.
        """
        content = []
        for own in events:
            if own.token is not None:
                others = [self._entry(*other, place.at_start) for other in own.top]
                content.append({**self._entry(own.token, own.logprob, place.at_start), "top_logprobs": others})
                place.at_start = place.at_start and own.token in self._tokenizer.special_ids
        return {"content": content, "refusal": None}

    def completion(self, events: Iterable[Event | PromptToken], place: Place) -> dict[str, Any]:
        """The form of completions.

        Args:
            events: tokens of an output, or of a prompt.
            place: in the text; it goes on with them.
        """
        out: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for own in events:
            if own.token is None:
                continue
            name, raw = self.token(own.token, place.at_start)
            top = {self.token(other, place.at_start)[0]: max(value, _LEAST) for other, value in own.top}
            if own.logprob is not None:
                top[name] = max(own.logprob, _LEAST)
            out["tokens"].append(name)
            out["token_logprobs"].append(top.get(name))
            out["top_logprobs"].append(top or None)
            if own.token in self._tokenizer.special_ids:  # which have no text
                out["text_offset"].append(place.offset)
                continue
            place.at_start = False
            if raw is not None:
                out["text_offset"].append(place.take(bytes(raw)))
            else:
                out["text_offset"].append(place.offset)
                place.offset += len(name)
        return out

    def _entry(self, token: int, logprob: float, at_start: bool) -> dict[str, Any]:
        name, raw = self.token(token, at_start)
        return {"token": name, "logprob": max(logprob, _LEAST), "bytes": raw}
