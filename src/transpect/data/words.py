"""Words as runs of tokens, whatever the tokenizer: so that a word is masked whole."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from transpect.base.errors import DataError


def split_words(text: str) -> list[str]:
    """The house rule for text that nobody has segmented, as BERT cuts text before WordPiece.

    A Chinese character is a word, and so is a mark of punctuation or a symbol; else a run of letters, digits and
    combining marks is one. Spaces part words and belong to none.
    """
    words: list[str] = []
    joins = False
    for char in text:
        kind = _kind(char)
        if kind == "run" and joins:
            words[-1] += char
        elif kind != "space":
            words.append(char)
        joins = kind == "run"
    return words


def word_starts(text: str, words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[bool]:
    """For each token whether a word starts with it; one that does not goes on with the word of the token before.

    A token that reaches from one word into the next binds the two together, for it can't be masked by halves. One that
    covers no word (a space) is a word by itself.

    Args:
        text: the text.
        words: its words in order.
        offsets: the half-open range of characters that each token covers.

    Raises:
        DataError: the words are not those of the text.
    """
    owner = _owners(text, words)
    starts: list[bool] = []
    reached = -1
    for begin, end in offsets:
        covered = [word for word in owner[begin:end] if word >= 0]
        starts.append(not covered or covered[0] > reached)
        reached = covered[-1] if covered else reached
    return starts


def _owners(text: str, words: Sequence[str]) -> list[int]:
    """For each character the number of its word; −1 for none."""
    owner = [-1] * len(text)
    at = 0
    for number, word in enumerate(words):
        at = text.find(word, at)
        if at < 0:
            raise DataError("a segmenter must give the words of the text in order", value=word)
        owner[at : at + len(word)] = [number] * len(word)
        at += len(word)
    return owner


@lru_cache(maxsize=4096)
def _kind(char: str) -> str:
    code = ord(char)
    if char.isspace():
        return "space"
    chinese = 0x3400 <= code <= 0x4DBF or 0x4E00 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or code >= 0x20000
    if not chinese and unicodedata.category(char)[0] in "LMN":
        return "run"
    return "single"
