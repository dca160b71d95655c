"""Predict what is hidden, from both sides (Devlin et al. 2019, §3.1; whole words: Cui et al. 2019, §3).

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
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import draws, shuffled
from transpect.data.objectives.base import Encoded, Example, Key, Needs, Objective, Task, filler
from transpect.data.packing import Piece, Plan, alone, cut, packed
from transpect.data.ragged import Ints, Ragged
from transpect.data.words import split_words, word_starts
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Masked(Objective, kind="masked"):
    """Masked-token prediction.

    Each of a row's w words is chosen with chance ``rate``, on its own; where none is, one of them by lot. So a token is
    predicted with chance rate + (1 − rate)^w / w, however long its word is. Special tokens, also those spelled out in a
    text, are never chosen and never a random replacement. Masks are drawn anew in each epoch, from the seed, the epoch
    and the row.

    Attributes:
        rate: of words to be predicted.
        mask: the share of predicted tokens that become mask.
        random: the share that become a random token; the rest is left as it is.
        whole_word: choose words, not tokens. Words are those of the source where it knows them (``fable``), else those
            of `split_words`: there a Chinese character is a word. A WordPiece that continues (``##``) is never parted.
        pack: several documents share a row of exactly ``seq_len`` and do not see each other.
    """

    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    whole_word: bool = True
    pack: bool = False

    needs: ClassVar[Needs] = Needs(model="encoder", roles=(("mask",),), looks_back=False)

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError("rate must be between 0 and 1", value=self.rate, remedy="Take 0.15.")
        if self.mask < 0 or self.random < 0 or self.mask + self.random > 1:
            raise ConfigError("mask and random are shares, together at most 1", value=(self.mask, self.random))

    @property
    def separates(self) -> bool:
        return self.pack

    def build(self, tokenizer: Tokenizer, seq_len: int) -> MaskedTask:
        self._check_tokenizer(tokenizer, seq_len, least=1 + len(_frame(tokenizer)))
        return MaskedTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return {"pad_token_id": filler(tokenizer)}


@final
class MaskedTask(Task):
    """Rows of pieces; a document is held as its tokens, and for each whether it starts a word (1), goes on with one (0)
    or is never masked (−1)."""

    def __init__(self, objective: Masked, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, seq_len if objective.pack else None)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len
        self._before = np.array([tokenizer.cls_id] if tokenizer.cls_id is not None else [], np.int64)
        self._after = np.array([tokenizer.sep_id] if tokenizer.sep_id is not None else [], np.int64)
        assert tokenizer.mask_id is not None
        self._mask_id = tokenizer.mask_id
        self._special: Final = tokenizer.special_ids
        ordinary = [i for i in range(tokenizer.vocab_size) if i not in self._special and tokenizer.id_to_token(i)]
        self._ordinary: Final = np.array(ordinary, np.int64)
        self._continuing = _continuation(tokenizer)

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        ids: list[list[int]] = []
        kinds: list[list[int]] = []
        for document in documents:
            row, offsets = self._tokenizer.encode_with_offsets(document.text)
            ids.append(row)
            kinds.append(self._kinds(document.text, row, offsets, segmenter))
        characters = sum(len(document.text) for document in documents)
        return Encoded((Ragged.of(ids), Ragged.of(kinds, np.int8)), characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        frame = len(self._before) + len(self._after)
        ids, kinds = encoded.streams
        pieces = cut(ids.lengths, self._seq_len - frame)
        free = np.concatenate([[0], np.cumsum(kinds.flat >= 0)])
        begin = kinds.starts[pieces[:, 0]] + pieces[:, 1]
        pieces = pieces[free[begin + pieces[:, 2]] > free[begin]]  # in the others there is nothing to hide
        if generator is not None:
            pieces = pieces[shuffled(len(pieces), generator)]
        return packed(pieces, self._seq_len, frame) if self._objective.pack else alone(pieces)

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
        chosen = rng.random(word[-1] + 1) < self._objective.rate
        if not chosen.any():
            chosen[int(rng.random() * len(chosen))] = True
        places = free[chosen[word]]
        lot = rng.random(len(places))
        strangers = self._ordinary[(rng.random(len(places)) * len(self._ordinary)).astype(np.int64)]
        mask, random = self._objective.mask, self._objective.random
        hidden = tokens.copy()
        hidden[places] = np.where(lot < mask, self._mask_id, np.where(lot < mask + random, strangers, tokens[places]))
        labels = np.full_like(tokens, IGNORE)
        labels[places] = tokens[places]
        return hidden, labels

    def _kinds(
        self, text: str, ids: list[int], offsets: list[tuple[int, int]], segmenter: Segmenter | None
    ) -> list[int]:
        if self._objective.whole_word:
            starts = word_starts(text, split_words(text) if segmenter is None else segmenter(text), offsets)
        else:
            starts = [True] * len(ids)
        return [
            -1 if i in self._special else int(start and not (self._objective.whole_word and i in self._continuing))
            for i, start in zip(ids, starts, strict=True)
        ]


def _frame(tokenizer: Tokenizer) -> list[int]:
    return [i for i in (tokenizer.cls_id, tokenizer.sep_id) if i is not None]


def _continuation(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids of a WordPiece vocabulary that go on with a word."""
    spec = tokenizer.decoder_spec or {}
    if spec.get("type") != "WordPiece":
        return frozenset()
    pieces = ((i, tokenizer.id_to_token(i)) for i in range(tokenizer.vocab_size))
    return frozenset(i for i, piece in pieces if piece is not None and piece.startswith(spec["prefix"]))
