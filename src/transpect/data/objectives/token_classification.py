"""Predict the class of each word of a text: tagging (Devlin et al. 2019, §5.3).

A text is read in the tokenizer's own template, as `LanguageModel.classify_tokens` reads it. The first token of a word
has the word's label; its others, and those of the template, have none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, final

import numpy as np

from transpect.base.errors import ConfigError, DataError
from transpect.core.config import ModelConfig
from transpect.core.heads import Head, TokenClass
from transpect.data.batch import IGNORE
from transpect.data.collating import Example
from transpect.data.documents import Document, Documents, Segmenter
from transpect.data.draws import shuffled
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task, filler
from transpect.data.objectives.classes import TooLong, check_names, class_of, fitting, names_in, too_long
from transpect.data.packing import Piece, Plan, alone
from transpect.data.ragged import Ragged
from transpect.text.framing import Frame
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class TokenClassification(Objective, kind="token_classification"):
    """A class a word; documents are those of a `tagged` source. Classes such as B-PER, I-PER, O are scored by spans.

    The model's head becomes `TokenClass` where the recipe names no such head.

    Attributes:
        labels: names of the classes, in the order of their numbers; None is all that occur in the training documents,
            sorted. They are saved with the model (``id2label``).
        too_long: what to do with a text of more than ``seq_len`` tokens in its template: an ``error``, ``drop`` it, or
            ``crop`` it; words that are cut off are not predicted.
    """

    labels: tuple[str, ...] | None = None
    too_long: TooLong = "error"

    needs: ClassVar[Needs] = Needs(("encoder", "decoder"), (), looks_back=False, heads=(TokenClass,), spells=False)
    loss: ClassVar[str] = "token_classification"

    def __post_init__(self) -> None:
        check_names(self.labels)

    @property
    def separates(self) -> bool:
        return False

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels or ()

    def settled(self, *documents: Documents) -> TokenClassification:
        if self.labels is not None:
            return self
        return replace(self, labels=names_in(documents, lambda document: tagged(document)[1]))

    def head(self, config: ModelConfig) -> Head:
        return fitting(config.head, TokenClass(len(self.classes)))

    def build(self, tokenizer: Tokenizer, seq_len: int) -> TokenClassificationTask:
        if self.labels is None:
            raise ConfigError("the classes must be known", remedy="Name them: data.objective.labels.")
        self._check_tokenizer(tokenizer, seq_len, least=1 + len(Frame.own(tokenizer)))
        return TokenClassificationTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return {"pad_token_id": filler(tokenizer)}


def tagged(document: Document) -> tuple[list[str], list[str]]:
    """The words of a document, and the tag of each.

    Raises:
        DataError: it has none.
    """
    if document.record is not None:
        row = json.loads(document.record)
        if "words" in row and "tags" in row:
            return row["words"], row["tags"]
    raise DataError(
        "the token_classification objective needs words with tags",
        value=document.text,
        file=document.file,
        line=document.line,
        remedy="Use a source of the kind tagged.",
    )


def first_tokens(text: str, words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """For each word the number of the first token that covers a character of it and of no earlier word; None where
    there is none."""
    owner = [-1] * len(text)
    at = 0
    for number, word in enumerate(words):
        at = text.index(word, at)
        owner[at : at + len(word)] = [number] * len(word)
        at += len(word)
    found: list[int | None] = [None] * len(words)
    reached = -1
    for token, (begin, end) in enumerate(offsets):
        covered = [word for word in owner[begin:end] if word >= 0]
        if covered and covered[0] > reached:
            found[covered[0]] = token
        reached = max([reached, *covered])
    return found


@final
class TokenClassificationTask(Task):
    """Rows of one text; it is held in its template, and for each token its label. A dropped text is held empty."""

    def __init__(self, objective: TokenClassification, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, None)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len
        self._frame = Frame.own(tokenizer)
        self._numbers: Final = {name: number for number, name in enumerate(objective.classes)}

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        rows, labels = zip(*map(self._encoded, documents), strict=True)
        return Encoded((Ragged.of(rows), Ragged.of(labels)), sum(len(document.text) for document in documents))

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        rows, labels = encoded.streams
        known = np.concatenate([[0], np.cumsum(labels.flat != IGNORE)])[labels.starts]
        texts = np.flatnonzero(np.diff(known))  # in the others nothing is predicted
        if generator is not None:
            texts = texts[shuffled(len(texts), generator)]
        return alone(np.stack([texts, np.zeros_like(texts), rows.lengths[texts]], 1))

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        (piece,) = pieces
        rows, labels = encoded.streams
        return Example.whole(rows.part(*piece), labels.part(*piece))

    def _encoded(self, document: Document) -> tuple[list[int], list[int]]:
        words, tags = tagged(document)
        numbers = [class_of(tag, self._numbers, document) for tag in tags]
        ids, offsets = self._tokenizer.encode_with_offsets(document.text)
        labels = [IGNORE] * len(ids)
        for token, number in zip(first_tokens(document.text, words, offsets), numbers, strict=True):
            if token is not None:
                labels[token] = number
        room = self._seq_len - len(self._frame)
        if len(ids) > room and self._objective.too_long == "error":
            raise too_long(document, len(ids) + len(self._frame), self._seq_len)
        if len(ids) > room and self._objective.too_long == "drop":
            return [], []
        before, after = self._frame.before, self._frame.after
        none = [IGNORE] * len(self._frame)
        return (
            [*before, *ids[:room], *after],
            [*none[: len(before)], *labels[:room], *none[len(before) :]],
        )
