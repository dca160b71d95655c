"""For each token of a text, whether a word starts with it: what objectives know that hide words and not tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from transpect.data.documents import Segmenter
from transpect.data.segmenters import SegmenterName, segmenter_named
from transpect.data.words import split_words, word_starts
from transpect.text.tokenizer import Tokenizer


@final
class WordMarks:
    """Marks of the tokens of a text: 1 starts a word, 0 goes on with one, −1 is special and belongs to none.

    Args:
        tokenizer: of the text.
        whole_word: False is a word a token.
        segmenter: cuts Chinese; None is the source's own, or else `split_words`.

    Raises:
        ConfigError: the segmenter's package is not installed.
    """

    def __init__(self, tokenizer: Tokenizer, *, whole_word: bool, segmenter: SegmenterName | None) -> None:
        self._whole_word = whole_word
        self._special: Final = tokenizer.special_ids
        self._continuing = _continuation(tokenizer) if whole_word else frozenset()
        self._segmenter = None if segmenter is None else segmenter_named(segmenter)

    def of(
        self, text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]], source: Segmenter | None
    ) -> list[int]:
        """The marks of a text's ids, which cover the characters ``offsets``."""
        starts = [True] * len(ids)
        if self._whole_word:
            cut = self._segmenter or source or split_words
            starts = word_starts(text, cut(text), offsets)
        return [
            -1 if i in self._special else int(start and i not in self._continuing)
            for i, start in zip(ids, starts, strict=True)
        ]


def _continuation(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids of a WordPiece vocabulary that go on with a word."""
    spec = tokenizer.decoder_spec or {}
    if spec.get("type") != "WordPiece":
        return frozenset()
    pieces = ((i, tokenizer.id_to_token(i)) for i in range(tokenizer.vocab_size))
    return frozenset(i for i, piece in pieces if piece is not None and piece.startswith(spec["prefix"]))
