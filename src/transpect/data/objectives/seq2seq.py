"""Predict a target from a source (teacher forcing: Vaswani et al. 2017, §3.1).

The encoder reads ``s_1 … s_m eos``, in the tokenizer's own template where that ends with eos (see `Frame.of_source`,
which writing uses too); the decoder reads ``start t_1 … t_n`` and predicts ``t_1 … t_n eos``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np

from transpect.base.checks import at_least
from transpect.base.errors import DataError
from transpect.data.batch import IGNORE
from transpect.data.buckets import in_buckets
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import shuffled
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task
from transpect.data.objectives.decoder_start import (
    Start,
    check_start,
    decoder_generation,
    decoder_start_and_end,
    written_after,
)
from transpect.data.packing import Piece, Plan, alone
from transpect.data.ragged import Ints, Ragged
from transpect.text.framing import Frame
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Seq2Seq(Objective, kind="seq2seq"):
    """A pair a row, source and target each padded to the longest in the batch.

    Attributes:
        bucket: in training, pairs of about one length follow each other in runs of so many, which come in random order,
            so that batches hold little padding; a few times the batch size, since a batch may begin anywhere in a run.
            1 is pairs in any order.
        too_long: what to do with a pair of which the source in its frame or the target with its eos is longer than
            ``seq_len``: an ``error``, ``drop`` it, or ``crop`` (a cropped source keeps its frame; a cropped target has
            no eos, because it does not end there).
        start: see `decoder_start_and_end`.
    """

    too_long: Literal["error", "drop", "crop"] = "error"
    bucket: int = 1
    start: Start | None = None

    needs: ClassVar[Needs] = Needs(model="encoder-decoder", roles=(("eos",), ("bos", "pad")), looks_back=True)

    def __post_init__(self) -> None:
        at_least("bucket", self.bucket, 1)
        check_start(self.start)

    @property
    def separates(self) -> bool:
        return False

    def begun(self, generation: Callable[[], Mapping[str, Any]]) -> Seq2Seq:
        return self if self.start else replace(self, start=written_after(generation()))

    def build(self, tokenizer: Tokenizer, seq_len: int) -> Seq2SeqTask:
        frame = max(len(self.start or (1,)), len(source_frame(tokenizer)))
        self._check_tokenizer(tokenizer, seq_len, least=1 + frame)
        return Seq2SeqTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return decoder_generation(tokenizer, self.start)


def source_frame(tokenizer: Tokenizer) -> Frame:
    """What stands around a source."""
    return Frame.of_source(tokenizer, tokenizer.eos_id)


@final
class Seq2SeqTask(Task):
    """Rows of one pair; it is held as the framed source and ``start t_1 … t_n eos``. A dropped pair is held empty."""

    def __init__(self, objective: Seq2Seq, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, None)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len
        self._start, self._end = decoder_start_and_end(tokenizer, objective.start)
        self._frame = source_frame(tokenizer)

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        sources = self._tokenizer.encode_batch([document.text for document in documents], parse_special=False)
        targets = self._tokenizer.encode_batch([_target(document) for document in documents], parse_special=False)
        characters = 0
        source_rows: list[list[int]] = []
        target_rows: list[list[int]] = []
        for document, source, target in zip(documents, sources, targets, strict=True):
            fits = max(len(source) + len(self._frame), len(target) + len(self._start)) <= self._seq_len
            if not fits and self._objective.too_long == "error":
                raise self._error(document, source, target)
            kept = fits or self._objective.too_long == "crop"
            source_row = self._frame.around(source[: self._seq_len - len(self._frame)])
            target_row = [*self._start, *target, self._end][: self._seq_len + 1]
            source_rows.append(source_row if kept else [])
            target_rows.append(target_row if kept else [])
            characters += len(self._text(document, target)) if kept else 0
        return Encoded((Ragged.of(source_rows), Ragged.of(target_rows)), characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        lengths = encoded.streams[1].lengths
        pairs = np.flatnonzero(lengths)
        if generator is not None:
            pairs = self._in_buckets(pairs[shuffled(len(pairs), generator)], encoded, generator)
        return alone(np.stack([pairs, np.zeros_like(pairs), lengths[pairs] - 1], 1))

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        sources, targets = encoded.streams
        ((pair, start, length),) = pieces
        labels = targets.part(pair, start + 1, length).copy()
        labels[: len(self._start) - 1] = IGNORE  # what is forced
        return Example(
            ids=targets.part(pair, start, length),
            labels=labels,
            position=np.arange(length),
            segment=np.zeros(length, np.int64),
            source=sources.part(pair, 0, int(sources.lengths[pair])),
        )

    def _in_buckets(self, pairs: Ints, encoded: Encoded, generator: np.random.Generator) -> Ints:
        sources, targets = (stream.lengths[pairs] for stream in encoded.streams)
        return in_buckets(pairs, sources + targets, self._objective.bucket, generator)

    def _text(self, document: Document, target: list[int]) -> str:
        """The part of a target that is predicted."""
        room = self._seq_len + 1 - len(self._start)
        return _target(document) if len(target) <= room else self._tokenizer.decode(target[:room])

    def _error(self, document: Document, source: list[int], target: list[int]) -> DataError:
        return DataError(
            f"source and target, with the tokens around them, must have at most seq_len = {self._seq_len} tokens",
            value=f"{len(source) + len(self._frame)} and {len(target) + len(self._start)} tokens",
            file=document.file,
            line=document.line,
            remedy="Raise data.seq_len, or set data.objective.too_long to drop or crop.",
        )


def _target(document: Document) -> str:
    if document.target is None:
        raise DataError(
            "the seq2seq objective needs pairs of texts",
            value=document.text,
            file=document.file,
            line=document.line,
            remedy="Use a tsv source, or a jsonl source with `target`.",
        )
    return document.target
