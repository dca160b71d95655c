"""Predict the class of a text (Devlin et al. 2019, §4.1; of a decoder: Radford et al. 2018, §3.2).

A text is read in the tokenizer's own template, as `LanguageModel.classify` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, final

import numpy as np

from transpect.base.errors import ConfigError, DataError
from transpect.core.config import ModelConfig
from transpect.core.heads import Head, SequenceClass
from transpect.data.collating import ROWS, Example
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
class Classification(Objective, kind="classification"):
    """A class a text; a document is a pair of text and label, e.g. of a jsonl source with ``target: label``.

    The model's head becomes `SequenceClass` where the recipe names no such head: on the first token of an encoder, on
    the last one of a decoder.

    Attributes:
        labels: names of the classes, in the order of their numbers; None is all that occur in the training documents,
            sorted. They are saved with the model (``id2label``).
        too_long: what to do with a text of more than ``seq_len`` tokens in its template: an ``error``, ``drop`` it, or
            ``crop`` it (the template stays whole).
    """

    labels: tuple[str, ...] | None = None
    too_long: TooLong = "error"

    needs: ClassVar[Needs] = Needs(
        ("encoder", "decoder"), (), looks_back=False, heads=(SequenceClass,), spells=False, reads_target=False
    )
    loss: ClassVar[str] = "classification"

    def __post_init__(self) -> None:
        check_names(self.labels)

    @property
    def separates(self) -> bool:
        return False

    @property
    def classes(self) -> tuple[str, ...]:
        return self.labels or ()

    def settled(self, *documents: Documents) -> Classification:
        if self.labels is not None:
            return self
        return replace(self, labels=names_in(documents, lambda document: (label_of(document),)))

    def head(self, config: ModelConfig) -> Head:
        n_classes = len(self.classes)
        if config.kind == "decoder":
            return fitting(config.head, SequenceClass(n_classes, pool="last", transform=None))
        return fitting(config.head, SequenceClass(n_classes))

    def build(self, tokenizer: Tokenizer, seq_len: int) -> ClassificationTask:
        if self.labels is None:
            raise ConfigError("the classes must be known", remedy="Name them: data.objective.labels.")
        self._check_tokenizer(tokenizer, seq_len, least=1 + len(Frame.own(tokenizer)))
        return ClassificationTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return {"pad_token_id": filler(tokenizer)}


def label_of(document: Document) -> str:
    """The label of a document.

    Raises:
        DataError: it has none.
    """
    if document.target is None:
        raise DataError(
            "the classification objective needs a label for each text",
            value=document.text,
            file=document.file,
            line=document.line,
            remedy="Use a tsv source of text and label, or name the field of the label: target: label.",
        )
    return document.target


@final
class ClassificationTask(Task):
    """Rows of one text; it is held in its template, and its class beside it. A dropped text is held empty."""

    def __init__(self, objective: Classification, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, None, ROWS)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len
        self._frame = Frame.own(tokenizer)
        self._numbers: Final = {name: number for number, name in enumerate(objective.classes)}

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        rows: list[list[int]] = []
        classes: list[list[int]] = []
        room = self._seq_len - len(self._frame)
        for document, ids in zip(
            documents, self._tokenizer.encode_batch([document.text for document in documents]), strict=True
        ):
            if len(ids) > room and self._objective.too_long == "error":
                raise too_long(document, len(ids) + len(self._frame), self._seq_len)
            kept = len(ids) <= room or self._objective.too_long == "crop"
            rows.append([*self._frame.before, *ids[:room], *self._frame.after] if kept else [])
            classes.append([class_of(label_of(document), self._numbers, document)])
        return Encoded((Ragged.of(rows), Ragged.of(classes)), sum(len(document.text) for document in documents))

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        lengths = encoded.streams[0].lengths
        texts = np.flatnonzero(lengths)
        if generator is not None:
            texts = texts[shuffled(len(texts), generator)]
        return alone(np.stack([texts, np.zeros_like(texts), lengths[texts]], 1))

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        rows, classes = encoded.streams
        ((document, start, length),) = pieces
        return Example.whole(rows.part(document, start, length), classes.part(document, 0, 1))
