"""Tell the text that belongs to another from those that don't (Gao et al. 2021, §2; Henderson et al. 2017, §4.4).

Texts are read in the tokenizer's own template, as `LanguageModel.embed` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from transpect.base.checks import within
from transpect.base.errors import DataError
from transpect.core.config import ModelConfig
from transpect.core.heads import Head, Pooled
from transpect.data.collating import GROUPS, Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import shuffled
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task, filler
from transpect.data.objectives.classes import TooLong, too_long
from transpect.data.packing import Piece, Plan, alone
from transpect.data.ragged import Ragged
from transpect.text.framing import Frame
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Contrastive(Objective, kind="contrastive"):
    """Pairs whose vectors should be near each other, and far from those of the other pairs of their batch.

    A document is a pair of texts (tsv, or jsonl with ``target``), or more (`triples`), whose further texts are hard
    negatives. The model's head becomes `Pooled` where the recipe names no such head: the mean of an encoder's vectors,
    the last one of a decoder's.

    Attributes:
        negatives: how many hard negatives of a document are read; it must have as many.
        too_long: what to do with a document of which a text has more than ``seq_len`` tokens in its template: an
            ``error``, ``drop`` it, or ``crop`` the text (the template stays whole).
    """

    negatives: int = 0
    too_long: TooLong = "error"

    needs: ClassVar[Needs] = Needs(("encoder", "decoder"), (), looks_back=False, heads=(Pooled,), spells=False)
    loss: ClassVar[str] = "contrastive"

    def __post_init__(self) -> None:
        within("negatives", self.negatives, 0)

    @property
    def separates(self) -> bool:
        return False

    def head(self, config: ModelConfig) -> Head:
        if isinstance(config.head, Pooled):
            return config.head
        return Pooled("last" if config.kind == "decoder" else "mean")

    def build(self, tokenizer: Tokenizer, seq_len: int) -> ContrastiveTask:
        self._check_tokenizer(tokenizer, seq_len, least=1 + len(Frame.own(tokenizer)))
        return ContrastiveTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return {"pad_token_id": filler(tokenizer)}


@final
class ContrastiveTask(Task):
    """Rows of one document; each of its texts is held in its template. A dropped document is held empty."""

    def __init__(self, objective: Contrastive, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, None, GROUPS)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len
        self._frame = Frame.own(tokenizer)

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        rows = [self._encoded(document) for document in documents]
        streams = tuple(Ragged.of(column) for column in zip(*rows, strict=True))
        return Encoded(streams, sum(len(document.text) for document in documents))

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        lengths = encoded.streams[0].lengths
        kept = np.flatnonzero(lengths)
        if generator is not None:
            kept = kept[shuffled(len(kept), generator)]
        return alone(np.stack([kept, np.zeros_like(kept), lengths[kept]], 1))

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        ((document, _, length),) = pieces
        anchor, *others = (stream.part(document, 0, int(stream.lengths[document])) for stream in encoded.streams)
        return Example(
            anchor, np.empty(0, np.int64), np.arange(length), np.zeros(length, np.int64), others=tuple(others)
        )

    def _encoded(self, document: Document) -> list[list[int]]:
        texts = [document.text, *self._others(document)]
        bodies = self._tokenizer.encode_batch(texts)
        room = self._seq_len - len(self._frame)
        longest = max(map(len, bodies))
        if longest > room and self._objective.too_long == "error":
            raise too_long(document, longest + len(self._frame), self._seq_len)
        if longest > room and self._objective.too_long == "drop":
            return [[] for _ in texts]
        return [[*self._frame.before, *ids[:room], *self._frame.after] for ids in bodies]

    def _others(self, document: Document) -> list[str]:
        if document.target is None:
            raise DataError(
                "the contrastive objective needs pairs of texts",
                value=document.text,
                file=document.file,
                line=document.line,
                remedy="Use a tsv source, a jsonl source with `target`, or a source of the kind triples.",
            )
        wanted = self._objective.negatives
        found = json.loads(document.record).get("negatives", []) if document.record else []
        if len(found) < wanted:
            raise DataError(
                f"each document must have {wanted} negatives",
                value=len(found),
                file=document.file,
                line=document.line,
                remedy="Add some, or lower data.objective.negatives.",
            )
        return [document.target, *found[:wanted]]
