"""Predict what is hidden, from both sides (Devlin et al. 2019, §3.1; whole words: Cui et al. 2019, §3; n-grams:
Joshi et al. 2020, §3.1, and Cui et al. 2020, §3.1).

A row is ``cls t_1 … t_n sep``, with those of the two that the tokenizer has. Words are chosen to be predicted; each of
their tokens is then replaced by mask (80 %), by a random token (10 %) or left (10 %). The rest is not predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np

from transpect.base.errors import ConfigError
from transpect.data.batch import IGNORE
from transpect.data.best_fit import Fit, check_fit, filled
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import draws, shuffled
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task, filler
from transpect.data.objectives.marks import WordMarks
from transpect.data.objectives.tokens import TakesTokens
from transpect.data.packing import Piece, Plan, alone, cut
from transpect.data.ragged import Ints, Ragged
from transpect.data.segmenters import SegmenterName
from transpect.data.spans import lengths_of, rounded, scattered, shares
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Masked(Objective, kind="masked"):
    """Masked-token prediction.

    Each of a row's w words is chosen with chance ``rate``, on its own; where none is, one of them by lot. So a token is
    predicted with chance rate + (1 − rate)^w / w, however long its word is. Special tokens, also those spelled out in a
    text, are never chosen and never a random replacement. Masks are drawn anew in each epoch, from the seed, the epoch
    and the row.

    With n-grams, ⌊rate·w⌋ or ⌈rate·w⌉ words are chosen (rate·w on average, at least one), in runs of 1, 2, … words:
    lengths are drawn by the weights ``ngrams`` until they add up, the last one cut, and every arrangement of the runs
    is as likely as any other. ``[0.4, 0.3, 0.2, 0.1]`` is MacBERT's choice, ``[1, 0.5, 0.333]`` ALBERT's, and
    SpanBERT's is ``[0.2·0.8ⁿ⁻¹ for n = 1 … 10]``.

    Attributes:
        rate: of words to be predicted.
        mask: the share of predicted tokens that become mask.
        random: the share that become a random token; the rest is left as it is.
        whole_word: choose words, not tokens. Words are those of ``segmenter``, or those of the source where it knows
            them (``fable``), else those of `split_words`: there a Chinese character is a word. A WordPiece that
            continues (``##``) is never parted.
        segmenter: cuts Chinese into words: ``jieba`` (``pip install 'transpect[zh]'``).
        ngrams: weights of the lengths 1, 2, … of runs of words; of one weight, each word is chosen on its own.
        together: all tokens of a word, or of an n-gram, become mask, random tokens or stay (SpanBERT); False is each
            by its own lot.
        pack: several documents share a row of exactly ``seq_len`` and do not see each other.
        fit: how packed rows are filled, by ``first`` or ``best`` fit (see `filled`).
    """

    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    whole_word: bool = True
    segmenter: SegmenterName | None = None
    ngrams: tuple[float, ...] = (1.0,)
    together: bool = False
    pack: bool = False
    fit: Fit = "first"

    needs: ClassVar[Needs] = Needs(model="encoder", roles=(("mask",),), looks_back=False, spells=False)

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError("rate must be between 0 and 1", value=self.rate, remedy="Take 0.15.")
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1:
            raise ConfigError("mask and random are shares, together at most 1", value=(self.mask, self.random))
        if not self.ngrams or min(self.ngrams) < 0 or not 0 < sum(self.ngrams) < float("inf"):
            raise ConfigError(
                "ngrams are weights of the lengths 1, 2, …, not all of them 0",
                value=self.ngrams,
                remedy="Take [0.4, 0.3, 0.2, 0.1].",
            )
        check_fit(self.fit, self.pack)
        if self.segmenter is not None and not self.whole_word:
            raise ConfigError(
                "a segmenter finds words, and whole_word: false chooses tokens",
                value=self.segmenter,
                remedy="Leave one of them out.",
            )

    @property
    def separates(self) -> bool:
        return self.pack

    def build(self, tokenizer: Tokenizer, seq_len: int) -> MaskedTask:
        self._check_tokenizer(tokenizer, seq_len, least=1 + len(_frame(tokenizer)))
        return MaskedTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return {"pad_token_id": filler(tokenizer)}


@final
class MaskedTask(Task, TakesTokens):
    """Rows of pieces; a document is held as its tokens, and for each whether it starts a word (1), goes on with one (0)
    or is never masked (−1)."""

    def __init__(self, objective: Masked, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, seq_len if objective.pack else None)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len
        self._before = np.array([tokenizer.cls_id] if tokenizer.cls_id is not None else [], np.int64)
        self._after = np.array([tokenizer.sep_id] if tokenizer.sep_id is not None else [], np.int64)
        assert tokenizer.mask_id is not None
        self._mask_id = tokenizer.mask_id
        special = tokenizer.special_ids
        ordinary = [i for i in range(tokenizer.vocab_size) if i not in special and tokenizer.id_to_token(i)]
        self._ordinary: Final = np.array(ordinary, np.int64)
        self._marks = WordMarks(tokenizer, whole_word=objective.whole_word, segmenter=objective.segmenter)
        self._lengths: Final = shares((0.0, *objective.ngrams))
        self._chosen = self._by_word if len(objective.ngrams) == 1 else self._by_ngram

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        ids: list[list[int]] = []
        kinds: list[list[int]] = []
        for document in documents:
            row, offsets = self._tokenizer.encode_with_offsets(document.text)
            ids.append(row)
            kinds.append(self._marks.of(document.text, row, offsets, segmenter))
        characters = sum(len(document.text) for document in documents)
        return Encoded((Ragged.of(ids), Ragged.of(kinds, np.int8)), characters)

    def encode_tokens(self, rows: Ragged, characters: int) -> Encoded:
        if self._objective.whole_word:
            raise ConfigError(
                "whole words are found in the text, which token files do not hold",
                value="whole_word: true",
                remedy="Set data.objective.whole_word: false, or read the text itself.",
            )
        kinds = np.where(np.isin(rows.flat, list(self._tokenizer.special_ids)), -1, 1).astype(np.int8)
        return Encoded((rows, Ragged(kinds, rows.starts)), characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        frame = len(self._before) + len(self._after)
        ids, kinds = encoded.streams
        pieces = cut(ids.lengths, self._seq_len - frame)
        free = np.concatenate([[0], np.cumsum(kinds.flat >= 0)])
        begin = kinds.starts[pieces[:, 0]] + pieces[:, 1]
        pieces = pieces[free[begin + pieces[:, 2]] > free[begin]]  # in the others there is nothing to hide
        if generator is not None:
            pieces = pieces[shuffled(len(pieces), generator)]
        if not self._objective.pack:
            return alone(pieces)
        return filled(pieces, self._seq_len, frame, self._objective.fit, generator)

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        rng = draws("mask", *key)
        ids, labels, lengths = [], [], []
        for document, start, length in pieces:
            tokens, kinds = (stream.part(document, start, length) for stream in encoded.streams)
            hidden, answers = self._hide(tokens, kinds, rng)
            ids += [self._before, hidden, self._after]
            labels += [np.full_like(self._before, IGNORE), answers, np.full_like(self._after, IGNORE)]
            lengths.append(length + len(self._before) + len(self._after))
        return Example(
            ids=np.concatenate(ids),
            labels=np.concatenate(labels),
            position=np.concatenate([np.arange(length) for length in lengths]),
            segment=np.repeat(np.arange(len(pieces)), lengths),
        )

    def _hide(self, tokens: Ints, kinds: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """What is read in place of some tokens, and what is to be predicted."""
        free = np.flatnonzero(kinds >= 0)
        starts = kinds[free] == 1
        starts[0] = True  # a piece may begin inside a word
        word = np.cumsum(starts) - 1
        chosen = self._chosen(int(word[-1]) + 1, rng)[word]
        places = free[chosen >= 0]
        lot = rng.random(len(places))
        if self._objective.together:
            _, first, group = np.unique(chosen[chosen >= 0], return_index=True, return_inverse=True)
            lot = lot[first][group]
        strangers = self._ordinary[(rng.random(len(places)) * len(self._ordinary)).astype(np.int64)]
        mask, random = self._objective.mask, self._objective.random
        hidden = tokens.copy()
        hidden[places] = np.where(lot < mask, self._mask_id, np.where(lot < mask + random, strangers, tokens[places]))
        labels = np.full_like(tokens, IGNORE)
        labels[places] = tokens[places]
        return hidden, labels

    def _by_word(self, n_words: int, rng: np.random.Generator) -> Ints:
        """For each word the number of the group that it is chosen with, here its own; −1 where it is not."""
        chosen = rng.random(n_words) < self._objective.rate
        if not chosen.any():
            chosen[int(rng.random() * n_words)] = True
        return np.where(chosen, np.arange(n_words), -1)

    def _by_ngram(self, n_words: int, rng: np.random.Generator) -> Ints:
        """The same, a group an n-gram."""
        lengths = lengths_of(max(1, rounded(self._objective.rate * n_words, rng)), self._lengths, rng)
        starts = scattered(lengths, n_words, rng)
        chosen = np.full(n_words, -1, np.int64)
        for group, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            chosen[start : start + length] = group
        return chosen


def _frame(tokenizer: Tokenizer) -> list[int]:
    return [i for i in (tokenizer.cls_id, tokenizer.sep_id) if i is not None]
