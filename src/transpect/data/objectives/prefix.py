"""Predict each next token after a prefix that is read from both sides (Raffel et al. 2020, §3.2.3; UniLM: Dong et al.
2019, §2.3).

A document is read as ``start t_1 … t_n`` as in `causal`; its first tokens are a prefix, which sees itself whole and of
which nothing is predicted but what follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np

from transpect.base.errors import DataError
from transpect.data.batch import IGNORE
from transpect.data.best_fit import Fit, check_fit, filled
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import draws, shuffled
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task
from transpect.data.objectives.causal import Causal, start_and_end
from transpect.data.objectives.tokens import TakesTokens
from transpect.data.packing import Piece, Plan, alone, cut
from transpect.data.ragged import Ragged
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Prefix(Objective, kind="prefix"):
    """Next-token prediction after a prefix, by a decoder with the visibility `prefix_lm`.

    Of a single text the prefix is its start token and its first tokens, as many as a lot says that is drawn anew in
    each epoch: of m tokens that are read 1 to m, all alike. Of a pair it is the source and ``between``, and the target
    is predicted.

    Attributes:
        between: what parts source and target of a pair.
        pack: several documents share a row of exactly ``seq_len`` and do not see each other. A text longer than
            ``seq_len`` is cut into pieces, each with a prefix of its own; such a pair is an error.
        fit: how packed rows are filled, by ``first`` or ``best`` fit (see `filled`).
    """

    between: str = "\n"
    pack: bool = True
    fit: Fit = "first"

    needs: ClassVar[Needs] = Needs("decoder", Causal.needs.roles, looks_back=True, sees_prefix=True, spells=False)

    def __post_init__(self) -> None:
        check_fit(self.fit, self.pack)

    @property
    def separates(self) -> bool:
        return self.pack

    def build(self, tokenizer: Tokenizer, seq_len: int) -> PrefixTask:
        self._check_tokenizer(tokenizer, seq_len, least=1)
        return PrefixTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return Causal().generation(tokenizer)


@final
class PrefixTask(Task, TakesTokens):
    """Rows of pieces; a document is held as ``start t_1 … t_n eos``, and for each token whether it belongs to a prefix
    that is given (1) or may (0)."""

    def __init__(self, objective: Prefix, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, seq_len if objective.pack else None)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len
        self._start, self._end = start_and_end(tokenizer)
        self._between: Final = tokenizer.encode(objective.between, parse_special=False)

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        texts = self._tokenizer.encode_batch([document.text for document in documents], parse_special=False)
        targets = self._tokenizer.encode_batch([document.target or "" for document in documents], parse_special=False)
        rows: list[list[int]] = []
        given: list[list[int]] = []
        for document, text, target in zip(documents, texts, targets, strict=True):
            if document.target is None:
                rows.append([self._start, *text, self._end])
                given.append([0] * len(rows[-1]))
                continue
            before = [self._start, *text, *self._between]
            rows.append([*before, *target, self._end])
            given.append([1] * len(before) + [0] * (len(target) + 1))
            if len(rows[-1]) - 1 > self._seq_len:
                raise DataError(
                    f"a pair must have at most seq_len = {self._seq_len} tokens",
                    value=len(rows[-1]) - 1,
                    file=document.file,
                    line=document.line,
                    remedy="Raise data.seq_len, or remove the pair.",
                )
        characters = sum(len(document.target or document.text) for document in documents)
        return Encoded((Ragged.of(rows), Ragged.of(given, np.int8)), characters)

    def encode_tokens(self, rows: Ragged, characters: int) -> Encoded:
        framed = rows.framed([self._start], [self._end])
        return Encoded((framed, Ragged(np.zeros(len(framed.flat), np.int8), framed.starts)), characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        pieces = cut(encoded.streams[0].lengths - 1, self._seq_len)
        if generator is not None:
            pieces = pieces[shuffled(len(pieces), generator)]
        if not self._objective.pack:
            return alone(pieces)
        return filled(pieces, self._seq_len, 0, self._objective.fit, generator)

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        rng = draws("prefix", *key)
        stream, given = encoded.streams
        ids, labels, prefixes = [], [], []
        for document, start, length in pieces:
            known = int(given.part(document, start, length).sum())
            size = known or 1 + int(rng.random() * length)
            answers = stream.part(document, start + 1, length)
            answers[: size - 1] = IGNORE
            ids.append(stream.part(document, start, length))
            labels.append(answers)
            prefixes.append(np.arange(length) < size)
        lengths = [len(row) for row in ids]
        return Example(
            ids=np.concatenate(ids),
            labels=np.concatenate(labels),
            position=np.concatenate([np.arange(length) for length in lengths]),
            segment=np.repeat(np.arange(len(pieces)), lengths),
            prefix=np.concatenate(prefixes).astype(np.int64),
        )
