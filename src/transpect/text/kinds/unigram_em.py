"""Training of a Unigram vocabulary: expectation maximisation over all ways to cut words into pieces.

The trainer in the ``tokenizers`` package adds floating-point numbers in an order that hash seeds and threads
decide, so two runs give two vocabularies. This one gives the same each time: one thread, vectorised over words.

All words stand one after the other in a flat array of characters, and ``table[position, n - 1]`` is the id of the piece
of ``n`` characters that begins at a position, or -1. Each step of the training is a pass over this table. Between the
characters of a word lie its borders, ``length + 1`` of them; a piece leads from one border to a later one.

Letters: W words, N characters of all words, M the longest piece, P pieces, n the pieces that end at a border.

Source: Kudo 2018, "Subword Regularization", section 3.2; the M step with the digamma function is the
variational one that SentencePiece uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SEEDS_PER_PIECE: Final = 10
"""Training starts from this many candidates for each piece of the final vocabulary, and from 20,000 at least."""
KEEP: Final = 0.75
"""A round of pruning keeps this share of the pieces."""
LONGEST_WORD: Final = 128
"""Longer words are cut, in training only: the time for a pass grows with the longest word."""
SMALLEST_COUNT: Final = 0.5
"""A piece that is expected to be used less often is dropped."""


def train_unigram(
    counts: Mapping[str, int], alphabet: Sequence[str], size: int, max_piece_length: int = 16
) -> list[tuple[str, float]]:
    """The pieces of a vocabulary and their natural log-probabilities, the most probable first.

    Args:
        counts: word to frequency. The words' characters are exactly those of the alphabet.
        alphabet: the characters; each is kept as a piece, so that every word can be spelled.
        size: at most this many pieces, and no fewer than the alphabet has.
        max_piece_length: the longest piece, in characters.
    """
    text, words = _flatten(counts, alphabet)
    pieces = _seed(text, words, len(alphabet), max(20_000, SEEDS_PER_PIECE * size), max_piece_length)
    while True:
        for _ in range(2):
            pieces = _maximised(pieces, _expected_uses(pieces, words))
        if len(pieces.logp) <= size:
            break
        pieces = _pruned(pieces, words, max(size, int(KEEP * len(pieces.logp))))

    spans = zip(pieces.start, pieces.length, strict=True)
    spelled = ["".join(alphabet[c] for c in text[start : start + length]) for start, length in spans]
    # Short decimals: the JSON reader of `tokenizers` moves the last bit of long ones, and processors differ there.
    scores = np.round(pieces.logp - np.logaddexp.reduce(pieces.logp), 6).tolist()
    return sorted(zip(spelled, scores, strict=True), key=lambda piece: (-piece[1], piece[0]))


@dataclass(frozen=True)
class _Words:
    """Stretches of the flat array of characters, the longest first.

    Args:
        start: (W,) the position where each begins.
        length: (W,) its characters.
        weight: (W,) how often it occurs.
    """

    start: Ints
    length: Ints
    weight: Floats

    def longest_first(self) -> tuple[_Words, Ints]:
        """The same words in order, and the order: old places (W,)."""
        order = np.argsort(-self.length, kind="stable")
        return _Words(self.start[order], self.length[order], self.weight[order]), order

    @cached_property
    def border(self) -> Ints:
        """(W,) the number of each word's first border, where all borders are counted through."""
        return np.cumsum(self.length + 1) - (self.length + 1)

    @property
    def n_borders(self) -> int:
        """The borders of all words."""
        return int((self.length + 1).sum())

    def reaching(self, t: int) -> int:
        """How many words have a border ``t``; they are the first ones."""
        return int(np.searchsorted(-self.length, -t, side="right"))

    def spread(self, values: Floats, n_positions: int) -> Floats:
        """A value a word (W,) to a value a position (N,)."""
        out = np.zeros(n_positions)
        at = np.repeat(self.start - (np.cumsum(self.length) - self.length), self.length)
        out[at + np.arange(len(at))] = np.repeat(values, self.length)
        return out


@dataclass(frozen=True)
class _Pieces:
    """A vocabulary in training. The first ids are the single characters, which always stay.

    Args:
        table: (N, M) the piece of each length at each position, or -1.
        start: (P,) a position where each piece begins.
        length: (P,) its characters.
        logp: (P,) its log-probability.
        n_chars: how many characters there are.
    """

    table: Ids
    start: Ints
    length: Ints
    logp: Floats
    n_chars: int

    def kept(self, chosen: Bools) -> _Pieces:
        """Only the chosen pieces, and all single characters, renumbered in the same order."""
        chosen[: self.n_chars] = True
        number = np.append(np.where(chosen, np.cumsum(chosen) - 1, -1), -1).astype(np.int32)
        return _Pieces(number[self.table], self.start[chosen], self.length[chosen], self.logp[chosen], self.n_chars)

    def best(self, worth: Floats, n: int) -> _Pieces:
        """The ``n`` pieces of most worth; of equal ones the first."""
        chosen = np.zeros(len(worth), dtype=bool)
        ranked = np.where(np.arange(len(worth)) < self.n_chars, np.inf, worth)
        chosen[np.argsort(-ranked, kind="stable")[:n]] = True
        return self.kept(chosen)

    def ending(self, words: _Words, t: int) -> tuple[Ids, Ints]:
        """The pieces that end at border ``t`` of the k words that have it: ids and first borders, (k, n)."""
        k = words.reaching(t)
        n = np.arange(1, min(t, self.table.shape[1]) + 1)
        begin = t - n
        return self.table[words.start[:k, None] + begin, n - 1], words.border[:k, None] + begin

    @cached_property
    def scores(self) -> Floats:
        """``logp``, and -∞ for id -1: no piece."""
        return np.append(self.logp, -np.inf)


def _flatten(counts: Mapping[str, int], alphabet: Sequence[str]) -> tuple[Ints, _Words]:
    """The flat array of characters (N,), as places in the alphabet, and the words in it."""
    parts: dict[str, int] = {}
    for word in sorted(counts):
        for at in range(0, len(word), LONGEST_WORD):
            part = word[at : at + LONGEST_WORD]
            parts[part] = parts.get(part, 0) + counts[word]
    number = {char: i for i, char in enumerate(alphabet)}
    text = np.array([number[char] for word in parts for char in word], dtype=np.int64)
    length = np.array([len(word) for word in parts], dtype=np.int64)
    weight = np.array(list(parts.values()), dtype=np.float64)
    return text, _Words(np.cumsum(length) - length, length, weight).longest_first()[0]


def _seed(text: Ints, words: _Words, n_chars: int, limit: int, longest: int) -> _Pieces:
    """All characters, and of the substrings that occur twice or more the ``limit`` that cover most text.

    A substring of ``n`` characters is named by the pair of its first ``n - 1`` and its last, level by level; one that
    occurs once has no longer one that occurs twice.
    """
    weight = words.spread(words.weight, len(text))
    end = words.spread((words.start + words.length).astype(np.float64), len(text))
    room = end - np.arange(len(text))  # characters from a position to its word's end
    table = np.full((len(text), longest), -1, dtype=np.int32)
    table[:, 0] = text
    starts, lengths = [np.unique(text, return_index=True)[1]], [np.ones(n_chars, dtype=np.int64)]
    covered = [np.bincount(text, weights=weight, minlength=n_chars)]
    shorter, n_pieces = text, n_chars
    for n in range(2, longest + 1):
        here = np.flatnonzero((room >= n) & (shorter >= 0))
        pair = shorter[here] * n_chars + text[here + n - 1]
        _, at, name = np.unique(pair, return_index=True, return_inverse=True)
        frequency = np.bincount(name, weights=weight[here])
        frequent = frequency >= 2
        if not frequent.any():
            break
        shorter = np.full(len(text), -1, dtype=np.int64)
        shorter[here] = np.where(frequent, np.cumsum(frequent) - 1, -1)[name]
        table[:, n - 1] = np.where(shorter >= 0, shorter + n_pieces, -1)
        starts.append(here[at[frequent]])
        lengths.append(np.full(int(frequent.sum()), n, dtype=np.int64))
        covered.append(frequency[frequent] * n)
        n_pieces += int(frequent.sum())
    cover: Floats = np.concatenate(covered).astype(np.float64)
    every = _Pieces(table, np.concatenate(starts), np.concatenate(lengths), np.log(cover), n_chars)
    chosen = every.best(cover, n_chars + limit)
    return replace(chosen, logp=chosen.logp - np.logaddexp.reduce(chosen.logp))


def _expected_uses(pieces: _Pieces, words: _Words) -> Floats:
    """E step, (P,): the expected uses of each piece over all segmentations (forward-backward)."""
    ends, longest = words.border + words.length, int(words.length[0])
    forward = np.full(words.n_borders, -np.inf)
    forward[words.border] = 0.0
    for t in range(1, longest + 1):
        ids, begin = pieces.ending(words, t)
        forward[words.border[: len(ids)] + t] = np.logaddexp.reduce(forward[begin] + pieces.scores[ids], axis=1)

    uses = np.zeros(len(pieces.scores))
    backward = np.full(words.n_borders, -np.inf)
    backward[ends] = 0.0
    for t in range(longest, 0, -1):
        ids, begin = pieces.ending(words, t)
        k = len(ids)
        onward = backward[words.border[:k] + t, None] + pieces.scores[ids]  # (k, n) through the piece to the word's end
        backward[begin] = np.logaddexp(backward[begin], onward)  # each border stands in `begin` once
        share = np.exp(forward[begin] + onward - forward[ends][:k, None])
        uses += np.bincount(
            ids.ravel() % len(uses), weights=(share * words.weight[:k, None]).ravel(), minlength=len(uses)
        )
    return uses[:-1]


def _maximised(pieces: _Pieces, uses: Floats) -> _Pieces:
    """M step: log p = ψ(uses) - ψ(all uses); pieces that are hardly used are dropped."""
    logp = _digamma(np.maximum(uses, SMALLEST_COUNT)) - _digamma(uses.sum(keepdims=True))
    return replace(pieces, logp=logp).kept(uses >= SMALLEST_COUNT)


def _pruned(pieces: _Pieces, words: _Words, n: int) -> _Pieces:
    """The ``n`` pieces without which the best segmentation would lose most log-likelihood."""
    nothing = np.full(len(words.length), -2)
    _, last = _best_paths(pieces, words, nothing)
    uses = np.zeros(len(pieces.logp))
    t = words.length.copy()
    while (alive := np.flatnonzero(t)).size:
        length = last[words.border[alive] + t[alive]]
        t[alive] -= length
        ids = pieces.table[words.start[alive] + t[alive], length - 1]
        uses += np.bincount(ids, weights=words.weight[alive], minlength=len(uses))

    # Each piece is a word too, to be spelled without itself.
    as_words, order = _Words(pieces.start, pieces.length, np.ones(len(uses))).longest_first()
    respelled = np.empty(len(uses))
    respelled[order] = _best_paths(pieces, as_words, order)[0]
    respelled[: pieces.n_chars] = 0.0  # can't be, and need not: they stay
    return pieces.best(uses * (pieces.logp - respelled), n)


def _best_paths(pieces: _Pieces, words: _Words, hidden: Ints) -> tuple[Floats, Ints]:
    """Viterbi, where in each word one piece is hidden.

    Returns:
        The log-probability of each word's best segmentation (W,); at each border the length of its last piece.
    """
    best = np.full(words.n_borders, -np.inf)
    best[words.border] = 0.0
    last = np.zeros(words.n_borders, dtype=np.int64)
    for t in range(1, int(words.length[0]) + 1):
        ids, begin = pieces.ending(words, t)
        k = len(ids)
        reached = np.where(ids == hidden[:k, None], -np.inf, best[begin] + pieces.scores[ids])
        last[words.border[:k] + t] = reached.argmax(axis=1) + 1
        best[words.border[:k] + t] = reached.max(axis=1)
    return best[words.border + words.length], last


def _digamma(x: Floats) -> Floats:
    """ψ(x) for x > 0: the recurrence ψ(x) = ψ(x + 1) - 1/x up to 7, then the asymptotic series."""
    x = x.copy()
    result = np.zeros_like(x)
    while (small := x < 7).any():
        result[small] -= 1 / x[small]
        x[small] += 1
    square = 1 / (x * x)
    return result + np.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252))
