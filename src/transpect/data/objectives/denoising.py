"""Predict a text from a spoilt one (BART: Lewis et al. 2020, §2.2).

The encoder reads the spoilt text, the decoder the text itself as in `seq2seq`, and predicts all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Final, final

import numpy as np

from transpect.base.errors import ConfigError
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import draws
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task
from transpect.data.objectives.decoder_start import (
    Start,
    check_start,
    decoder_generation,
    decoder_start_and_end,
    teacher_forced,
    written_after,
)
from transpect.data.objectives.noises import Noise, Passage, SentencePermutation, TextInfilling
from transpect.data.objectives.seq2seq import Seq2Seq, source_frame
from transpect.data.objectives.span import plan_rows
from transpect.data.packing import Piece, Plan
from transpect.data.ragged import Ragged
from transpect.data.sentences import sentence_starts
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Denoising(Objective, kind="denoising"):
    """Mending of texts. They are spoilt anew in each epoch, from the seed, the epoch and the row.

    Attributes:
        noises: how they are spoilt, one after another; BART's final choice where nothing is said.
        join: documents stand end to end, and that stream is cut into rows of one length; False is rows of one document
            each, where a long one is cut.
        start: see `decoder_start_and_end`.
    """

    noises: tuple[Noise, ...] = (SentencePermutation(), TextInfilling())
    join: bool = False
    start: Start | None = None

    needs: ClassVar[Needs] = Needs(Seq2Seq.needs.model, (*Seq2Seq.needs.roles, ("mask",)), looks_back=True)

    def __post_init__(self) -> None:
        if not self.noises:
            raise ConfigError(
                "denoising needs at least one noise", remedy=f"Choose from {', '.join(Noise.kinds())}, or leave it out."
            )

        check_start(self.start)

    @property
    def separates(self) -> bool:
        return False

    def begun(self, generation: Callable[[], Mapping[str, Any]]) -> Denoising:
        return self if self.start else replace(self, start=written_after(generation()))

    def build(self, tokenizer: Tokenizer, seq_len: int) -> DenoisingTask:
        frame = len(source_frame(tokenizer)) if tokenizer.eos_id is not None else 1
        self._check_tokenizer(tokenizer, seq_len, least=1 + max(frame, len(self.start or ())))
        return DenoisingTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return decoder_generation(tokenizer, self.start)


@final
class DenoisingTask(Task):
    """Rows of pieces; a document is held as its tokens, and for each whether a sentence starts with it."""

    def __init__(self, objective: Denoising, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, None)
        self._objective, self._tokenizer = objective, tokenizer
        self._start, self._end = decoder_start_and_end(tokenizer, objective.start)
        self._frame: Final = source_frame(tokenizer)
        self._body = seq_len - max(len(self._frame), len(self._start))
        assert tokenizer.mask_id is not None
        self._mask_id = tokenizer.mask_id

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        ids: list[list[int]] = []
        starts: list[list[int]] = []
        for document in documents:
            row, offsets = self._tokenizer.encode_with_offsets(document.text, parse_special=False)
            ids.append(row)
            starts.append(_marks(document.text, offsets))
        characters = sum(len(document.text) for document in documents)
        return Encoded((Ragged.of(ids), Ragged.of(starts, np.int8)), characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        return plan_rows(encoded.streams[0].lengths, self._body, generator, join=self._objective.join)

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        rng = draws("denoising", *key)
        ids, starts = (np.concatenate([stream.part(*piece) for piece in pieces]) for stream in encoded.streams)
        whole = Passage(ids, starts, self._mask_id, self._body)
        spoilt = reduce(lambda passage, noise: noise.spoil(passage, rng), self._objective.noises, whole)
        read, labels = teacher_forced(self._start, ids, self._end)
        places = np.arange(len(read))
        return Example(
            ids=read,
            labels=labels,
            position=places,
            segment=np.zeros_like(places),
            source=np.array(self._frame.around(spoilt.ids.tolist()), np.int64),
        )


def _marks(text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """For each token, whether it is the first that reaches into its sentence."""
    number = np.zeros(len(text) + 1, np.int64)
    number[sentence_starts(text)] = 1
    number = np.cumsum(number)
    marks: list[int] = []
    reached = 0
    for _, end in offsets:
        here = int(number[max(end - 1, 0)])
        marks.append(int(here > reached))
        reached = max(reached, here)
    return marks
