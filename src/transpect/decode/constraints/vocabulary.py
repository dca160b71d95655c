"""The tokens of a tokenizer as llguidance takes them, and the grammars compiled for them, made once each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from transpect.base.errors import GenerationError, TokenizerError
from transpect.decode.constraints.languages import Language, escaped
from transpect.text.token_bytes import token_bytes
from transpect.text.tokenizer import Tokenizer

_GRAMMARS: Final = 64
"""How many compiled grammars are kept for a vocabulary, the latest."""

_IN_UTF8: Final = frozenset([*range(0xC0), *range(0xC2, 0xF5)])


class Vocabulary:
    """What the tokens of a tokenizer add to a text, and the grammars that were compiled for it.

    Beyond the V tokens there are 256 more, a byte each, which are never chosen: by them a matcher can read any text,
    and say which byte it waits for.

    Args:
        tokenizer: of any kind whose tokens have bytes of their own (see `token_bytes`).
        at_start: the first token begins the text, where some tokenizers drop a space.

    Raises:
        GenerationError: they have none.
    """

    def __init__(self, tokenizer: Tokenizer, at_start: bool) -> None:
        try:
            self.later: Final = token_bytes(tokenizer)
            self.first: Final = token_bytes(tokenizer, at_start=at_start)
        except TokenizerError as error:
            raise GenerationError(
                f"an output can't be held to a language with this tokenizer: {error.rule}",
                value=error.value,
                remedy=error.remedy,
            ) from error
        self.size: Final = len(self.later)
        self._spelled = _spelled(self.first, self.later)
        self._later_tokens = _tokens(self.later)
        self._first_tokens = self._later_tokens if self.first == self.later else _tokens(self.first)
        self._compiled: OrderedDict[Language, tuple[LLMatcher, LLMatcher]] = OrderedDict()
        self._changing = Lock()  # a server prepares requests in several threads

    def matchers(self, language: Language) -> tuple[LLMatcher, LLMatcher]:
        """Two matchers at the beginning of a text of the language, to be copied and never moved: the first knows which
        tokens may come first, and the other, after it has read the bytes of one of them, which may come later.

        Raises:
            GenerationError: a language that can't be compiled.
        """
        found = self._compiled.get(language)
        if found is None:
            grammar = language.grammar(self._spelled)
            found = (
                _compiled(self._first_tokens, language, grammar),
                _compiled(self._later_tokens, language, grammar),
            )
        with self._changing:
            self._compiled[language] = found
            self._compiled.move_to_end(language)
            if len(self._compiled) > _GRAMMARS:
                self._compiled.popitem(last=False)
        return found

    def byte_ids(self, text: bytes) -> list[int]:
        """The ids by which a matcher reads bytes."""
        return [self.size + byte for byte in text]


def vocabulary_of(tokenizer: Tokenizer, *, at_start: bool) -> Vocabulary:
    """The vocabulary of a tokenizer, made at the first call."""
    made = _VOCABULARIES.setdefault(tokenizer, {})
    if at_start not in made:
        made[at_start] = Vocabulary(tokenizer, at_start)
    return made[at_start]


_VOCABULARIES: WeakKeyDictionary[Tokenizer, dict[bool, Vocabulary]] = WeakKeyDictionary()


class _Table:
    """What `TokenizerWrapper` asks of a tokenizer. No text is ever cut into tokens here."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = [*tokens, *(bytes([byte]) for byte in range(256)), b"<end>"]
        self.eos_token_id, self.bos_token_id = len(self.tokens) - 1, None
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: str | bytes) -> list[int]:
        return []


def _tokens(table: Sequence[bytes]) -> LLTokenizer:
    wrapped = _Table(table)
    return LLTokenizer(TokenizerWrapper(wrapped), n_vocab=len(wrapped.tokens))


def _compiled(tokens: LLTokenizer, language: Language, grammar: str) -> LLMatcher:
    made = LLMatcher(tokens, grammar, log_level=0)
    if made.is_error():
        raise GenerationError(
            f"{language.option} can't be used: {made.get_error().splitlines()[0]}", remedy="Make it simpler."
        )
    return made


def _spelled(first: Sequence[bytes], later: Sequence[bytes]) -> str | None:
    """A regular expression for the texts that a vocabulary can spell; None where that is every text, or where its
    tokens are parts of characters."""
    if {token[0] for token in later if len(token) == 1} >= _IN_UTF8:
        return None
    try:
        texts, starts = ({token.decode() for token in table if token} for table in (later, first))
    except UnicodeDecodeError:
        return None
    parts = _parts(texts, texts)
    heads = parts if starts == texts else _parts(starts, parts)
    return f"({_any(heads)}({_any(parts)})*)?"


def _parts(texts: set[str], tails: set[str]) -> set[str]:
    """The texts that are not one of the others followed by tails, so that these with tails spell them all."""
    longest, needed = max(map(len, tails), default=0), set()
    for text in texts:
        # whether the text can be cut at each place into one of the texts and tails
        cut = [False] * (len(text) + 1)
        for end in range(1, len(text) + 1):
            begins = end < len(text) and text[:end] in texts
            cut[end] = begins or any(
                cut[start] and text[start:end] in tails for start in range(max(1, end - longest), end)
            )
        if not cut[-1]:
            needed.add(text)
    return needed


def _any(texts: Iterable[str]) -> str:
    """A regular expression for one of some texts."""
    chars = "".join(escaped(text) for text in sorted(texts) if len(text) == 1)
    longer = [escaped(text) for text in sorted(texts) if len(text) > 1]
    return "(" + "|".join([*([f"[{chars}]"] if chars else []), *longer]) + ")"
