"""What may come next in an output that is held to a language."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from llguidance import LLMatcher
from torch import Tensor

from transpect.base.errors import GenerationError
from transpect.decode.constraints.languages import Language
from transpect.decode.constraints.vocabulary import Vocabulary, vocabulary_of
from transpect.text.streaming import StreamDecoder
from transpect.text.tokenizer import Tokenizer

_PASTS: Final = 64
"""How many pasts an output remembers: those of its beams and of the drafts that are being judged."""


class Matching:
    """The tokens that go on with a text of a language.

    A token is allowed exactly where some text of the language begins with the bytes written and its own; special tokens
    never. Where what is written is a text of the language, an end may be chosen too, and where nothing can follow it,
    nothing but an end. In a vocabulary that can't spell every text, a regular expression or a list of choices means
    those of its texts that can be spelled.

    Everything here is a function of the ids written, so that rows may be tried, taken back and repeated.

    Args:
        vocabulary: the bytes of the tokens.
        language: of the whole output.
        vocab_size: V of the model, which may have more rows than the tokenizer has tokens, or fewer.
        ends: tokens that end the output.
        banned: tokens that are never chosen.

    Raises:
        GenerationError: no token, or no token but an end that there isn't, can be written.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        language: Language,
        *,
        vocab_size: int,
        ends: Sequence[int] = (),
        banned: Sequence[int] = (),
    ) -> None:
        self._vocabulary, self._language, self._vocab_size = vocabulary, language, vocab_size
        self._banned = [token for token in banned if token < vocab_size]
        self._marks = [token for token in ends if token < vocab_size]
        self._ends = sorted(set(self._marks) - set(self._banned))
        self._first, self._later = (matcher.deep_copy() for matcher in vocabulary.matchers(language))
        self._pasts: OrderedDict[tuple[int, ...], LLMatcher | None] = OrderedDict()
        if self.complete(()):
            raise GenerationError(
                "a language whose only text is empty needs a token that ends the output",
                value=language,
                remedy="Pass eos_ids.",
            )

    def mask(self, written: tuple[int, ...]) -> Tensor | None:
        """[V] bool, with at least one True; None after what is no beginning of a text of the language, or a whole one.

        Raises:
            GenerationError: no token can go on as the language must.
        """
        matcher = self._after(written)
        if matcher is None:
            return None
        allowed, wanted = self._allowed(matcher)
        if matcher.is_accepting():
            allowed[self._ends] = True
            return allowed if bool(allowed.any()) else None
        if not bool(allowed.any()):
            raise GenerationError(
                f"{self._language.option} must go on with something that this vocabulary can't write",
                value=_shown(wanted) or "a language without texts",
                remedy="Use a tokenizer with byte tokens, take tokens out of banned, or allow other texts.",
            )
        return allowed

    def complete(self, written: tuple[int, ...]) -> bool:
        """Whether the output ends here by itself: nothing may follow, and there is no token to say so."""
        matcher = None if self._ends else self._after(written)
        return matcher is not None and matcher.is_accepting() and not bool(self._allowed(matcher)[0].any())

    def _allowed(self, matcher: LLMatcher) -> tuple[Tensor, bytes]:
        """[V] bool, without ends; and the bytes that the language could go on with."""
        size = self._vocabulary.size
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little").view(bool)
        allowed = torch.zeros(self._vocab_size, dtype=torch.bool)
        held = min(size, self._vocab_size)
        allowed[:held] = torch.from_numpy(bits[:held])
        allowed[self._banned] = False
        allowed[self._marks] = False
        return allowed, bytes(np.flatnonzero(bits[size : size + 256]).tolist())

    def _after(self, written: tuple[int, ...]) -> LLMatcher | None:
        """A matcher that has read the tokens; None where they are no beginning of a text of the language."""
        if not written:
            return self._first
        if written in self._pasts:
            self._pasts.move_to_end(written)
            return self._pasts[written]
        known = len(written) - 1
        while known and written[:known] not in self._pasts:
            known -= 1
        matcher = self._pasts[written[:known]] if known else self._later
        for length in range(known, len(written)):
            matcher = None if matcher is None else self._read(matcher, written[length], is_first=length == 0)
        self._pasts[written] = matcher
        if len(self._pasts) > _PASTS:
            self._pasts.popitem(last=False)
        return matcher

    def _read(self, matcher: LLMatcher, token: int, *, is_first: bool) -> LLMatcher | None:
        """A copy that has read one token more; None where it may not come."""
        vocabulary = self._vocabulary
        added = (vocabulary.first if is_first else vocabulary.later)[token] if token < vocabulary.size else b""
        after, ids = matcher.deep_copy(), vocabulary.byte_ids(added)
        return after if ids and after.try_consume_tokens(ids) == len(ids) else None


def matching(
    tokenizer: Tokenizer | None,
    language: Language,
    prompt: Sequence[int],
    *,
    vocab_size: int,
    ends: Sequence[int] = (),
    banned: Sequence[int] = (),
) -> Matching:
    """What holds the output after a prompt to a language.

    Args:
        tokenizer: of the model.
        language: of the text that stands after the prompt, exactly as the output has it: a space that the tokenizer
            writes as part of the next word belongs to it.
        prompt: the ids before the output.
        vocab_size: see `Matching`.
        ends: likewise.
        banned: likewise.

    Raises:
        GenerationError: no tokenizer, a prompt that ends within a character, or as `Matching`.
    """
    if tokenizer is None:
        raise GenerationError(
            f"{language.option} speaks of text, which needs a tokenizer", value=language, remedy="Pass tokenizer=."
        )
    stream = StreamDecoder(tokenizer, skip_special_tokens=True)
    stream.prime(prompt)
    rest = stream.flush()
    if rest:
        raise GenerationError(
            f"{language.option} needs a prompt that does not end within a character",
            value=rest,
            remedy="Leave out its last tokens.",
        )
    text = [
        token for token in prompt if token not in tokenizer.special_ids and tokenizer.id_to_token(token) is not None
    ]
    return Matching(
        vocabulary_of(tokenizer, at_start=not text), language, vocab_size=vocab_size, ends=ends, banned=banned
    )


def _shown(wanted: bytes) -> str:
    """Bytes, as a person reads them."""
    return " or ".join(chr(byte) if 0x20 < byte < 0x7F else f"0x{byte:02X}" for byte in wanted[:8])
