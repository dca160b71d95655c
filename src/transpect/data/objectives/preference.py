"""Preferences: two answers to one prompt, of which one was chosen.

A row is a preference: the prompt with the chosen answer in segment 0, the prompt with the rejected one in segment 1,
each with positions of its own, so that one pass reads both and neither sees the other. Labels stand on the answers
alone, as in `Chat`. What is made of their probabilities is the loss's affair (``train.loss``: dpo, ipo).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np

from transpect.base.errors import DataError, TokenizerError
from transpect.data.batch import IGNORE
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import shuffled
from transpect.data.objectives.base import Encoded, Generation, Key, Needs, Objective, Task
from transpect.data.objectives.chat import at_line, chat_generation, record_of, with_template
from transpect.data.packing import Piece, Plan, alone
from transpect.data.ragged import Ints, Ragged
from transpect.text.answers import Answers, encode_answers
from transpect.text.chat import chat_template
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Preference(Objective, kind="preference"):
    """A chosen and a rejected answer a row, padded to the longest in the batch.

    Attributes:
        too_long: what to do with a preference of which one side has more than ``seq_len`` places: an ``error``, or
            ``drop`` it. Nothing is cropped: an answer that is cut is not the one that was judged.
        template: one of the tokenizer's chat templates by name, or Jinja source.
    """

    too_long: Literal["error", "drop"] = "error"
    template: str = "default"

    needs: ClassVar[Needs] = Needs(model="decoder", roles=(("eos",),), looks_back=True)
    loss: ClassVar[str] = "dpo"
    shown: ClassVar[int] = 2

    @property
    def separates(self) -> bool:
        return True

    def build(self, tokenizer: Tokenizer, seq_len: int) -> PreferenceTask:
        self._check_tokenizer(tokenizer, seq_len, least=2)
        if "{" not in self.template:
            chat_template(tokenizer, self.template)
        return PreferenceTask(self, tokenizer, seq_len)

    def dressed(self, tokenizer: Tokenizer) -> Tokenizer:
        return with_template(tokenizer, self.template)

    def generation(self, tokenizer: Tokenizer) -> Generation:
        return chat_generation(tokenizer, self.template)


@final
class PreferenceTask(Task):
    """Rows of one preference, held as ids and labels of both sides; what is dropped is held empty."""

    def __init__(self, objective: Preference, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, None)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        streams: tuple[list[list[int]], ...] = ([], [], [], [])
        for document in documents:
            sides = [self._side(document, key) for key in ("chosen", "rejected")]
            kept = all(len(side.ids) <= self._seq_len + 1 for side in sides)
            if not kept and self._objective.too_long == "error":
                raise DataError(
                    f"a prompt with its answer must have at most seq_len = {self._seq_len} places",
                    value=max(len(side.ids) for side in sides) - 1,
                    file=document.file,
                    line=document.line,
                    remedy="Raise data.seq_len, or set data.objective.too_long: drop.",
                )
            for number, side in enumerate(sides):
                streams[2 * number].append(side.ids if kept else [])
                streams[2 * number + 1].append(list(map(int, side.learnt)) if kept else [])
        chosen, is_chosen, rejected, is_rejected = streams
        flags = [Ragged.of(rows, np.int8) for rows in (is_chosen, is_rejected)]
        return Encoded((Ragged.of(chosen), flags[0], Ragged.of(rejected), flags[1]), 0)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        places = encoded.streams[0].lengths + encoded.streams[2].lengths - 2
        kept = np.flatnonzero(encoded.streams[0].lengths)
        if generator is not None:
            kept = kept[shuffled(len(kept), generator)]
        return alone(np.stack([kept, np.zeros_like(kept), places[kept]], 1))

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        ((pair, _, _),) = pieces
        sides = [_shifted(ids, learnt, pair) for ids, learnt in (encoded.streams[:2], encoded.streams[2:])]
        lengths = [len(ids) for ids, _ in sides]
        return Example(
            ids=np.concatenate([ids for ids, _ in sides]),
            labels=np.concatenate([labels for _, labels in sides]),
            position=np.concatenate([np.arange(length) for length in lengths]),
            segment=np.repeat(np.arange(2), lengths),
        )

    def _side(self, document: Document, key: str) -> Answers:
        record: dict[str, Any] = record_of(document, "preference", "prompt")
        try:
            return encode_answers(
                self._tokenizer,
                [*record["prompt"], record[key]],
                template=self._objective.template,
                tools=record.get("tools"),
                last=True,
            )
        except TokenizerError as error:
            raise at_line(error, document) from error


def _shifted(ids: Ragged, learnt: Ragged, row: int) -> tuple[Ints, Ints]:
    """What is read, and the labels of it."""
    length = int(ids.lengths[row]) - 1
    labels: Ints = np.where(learnt.part(row, 1, length), ids.part(row, 1, length), IGNORE)
    return ids.part(row, 0, length), labels
