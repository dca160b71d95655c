"""Instruction tuning: read a conversation, predict what the assistant says in it, and nothing else.

A conversation is rendered by the tokenizer's chat template to tokens t_0 … t_n; it is read as ``t_0 … t_(n−1)``, and
t_(i+1) is the label of t_i where the assistant says it (`encode_answers`), the token that ends its turn included, also
where that token pads batches: labels are set by place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np

from transpect.base.errors import DataError, TokenizerError
from transpect.data.batch import IGNORE
from transpect.data.best_fit import Fit, check_fit, filled
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import shuffled
from transpect.data.objectives.base import Encoded, Generation, Key, Needs, Objective, Task, filler
from transpect.data.packing import Piece, Plan, alone
from transpect.data.ragged import Ragged
from transpect.text.answers import Answers, encode_answers
from transpect.text.chat import chat_template
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Chat(Objective, kind="chat"):
    """Prediction of the assistant's answers.

    Attributes:
        answers: ``all`` of a conversation, or the ``last`` one alone; the others are context then.
        pack: several conversations share a row of exactly ``seq_len``, each whole, with a segment and positions of its
            own; False is a row each, padded to the longest in the batch.
        too_long: what to do with a conversation of more than ``seq_len`` places: an ``error``, ``drop`` it, or ``crop``
            its end (an answer that is cut has no end there). One that is left without a label is dropped.
        template: one of the tokenizer's chat templates by name, or Jinja source.
        fit: by which rule conversations are packed (see `filled`).
    """

    answers: Literal["all", "last"] = "all"
    pack: bool = True
    too_long: Literal["error", "drop", "crop"] = "error"
    template: str = "default"
    fit: Fit = "first"

    needs: ClassVar[Needs] = Needs(model="decoder", roles=(("eos",),), looks_back=True)
    shown: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_fit(self.fit, self.pack)

    @property
    def separates(self) -> bool:
        return self.pack

    def build(self, tokenizer: Tokenizer, seq_len: int) -> ChatTask:
        self._check_tokenizer(tokenizer, seq_len, least=2)
        if "{" not in self.template:
            chat_template(tokenizer, self.template)
        return ChatTask(self, tokenizer, seq_len)

    def dressed(self, tokenizer: Tokenizer) -> Tokenizer:
        return with_template(tokenizer, self.template)

    def generation(self, tokenizer: Tokenizer) -> Generation:
        return chat_generation(tokenizer, self.template)


def chat_generation(tokenizer: Tokenizer, template: str) -> Generation:
    """Special ids for whoever chats: an answer ends with eos, or with what the template ends a turn with."""
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    assert eos is not None
    probe = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
    try:
        found = encode_answers(tokenizer, probe, template=template)
        end = max((at for at, learnt in enumerate(found.learnt) if learnt), default=None)
        last = eos if end is None else found.ids[end]
    except TokenizerError:  # of a template that wants more than two messages, what it ends with is not known
        last = eos
    ends = [eos, last] if last in tokenizer.special_ids and last != eos else eos
    return {**({} if bos is None else {"bos_token_id": bos}), "eos_token_id": ends, "pad_token_id": filler(tokenizer)}


def with_template(tokenizer: Tokenizer, template: str) -> Tokenizer:
    """The tokenizer, whose default chat template is this one where it is Jinja source, and else its own."""
    if "{" not in template:
        return tokenizer
    return Tokenizer(
        tokenizer.backend,
        tokenizer.special_tokens,
        chat_templates={**tokenizer.chat_templates, "default": template},
        extra_config=tokenizer.extra_config,
    )


def record_of(document: Document, kind: str, source: str) -> dict[str, Any]:
    """What a document holds besides text.

    Raises:
        DataError: nothing.
    """
    record = None if document.record is None else json.loads(document.record)
    if not isinstance(record, dict) or source not in record:
        raise DataError(
            f"the {kind} objective needs documents with {source}",
            value=document.text,
            file=document.file,
            line=document.line,
            remedy=f"Use a source of kind {'chat' if source == 'messages' else 'preference'}.",
        )
    return record


def at_line(error: TokenizerError, document: Document) -> DataError:
    """An error of a template, with the place of what it could not render."""
    return DataError(error.rule, value=error.value, file=document.file, line=document.line, remedy=error.remedy)


@final
class ChatTask(Task):
    """Rows of whole conversations; each is held as its tokens and, for each, whether it is learnt. What is dropped is
    held empty."""

    def __init__(self, objective: Chat, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, seq_len if objective.pack else None)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        ids: list[list[int]] = []
        learnt: list[list[int]] = []
        characters = 0
        for document in documents:
            found = self._fitted(self._answers(document), document)
            ids.append(found.ids)
            learnt.append(list(map(int, found.learnt)))
            said = [token for token, own in zip(found.ids, found.learnt, strict=True) if own]
            characters += len(self._tokenizer.decode(said, skip_special_tokens=True))
        return Encoded((Ragged.of(ids), Ragged.of(learnt, np.int8)), characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        lengths = encoded.streams[0].lengths
        kept = np.flatnonzero(lengths)
        if generator is not None:
            kept = kept[shuffled(len(kept), generator)]
        pieces = np.stack([kept, np.zeros_like(kept), lengths[kept] - 1], 1)
        if not self._objective.pack:
            return alone(pieces)
        return filled(pieces, self._seq_len, 0, self._objective.fit, generator)

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        ids, learnt = encoded.streams
        lengths = [length for _, _, length in pieces]
        labels = [
            np.where(learnt.part(document, start + 1, length), ids.part(document, start + 1, length), IGNORE)
            for document, start, length in pieces
        ]
        return Example(
            ids=np.concatenate([ids.part(document, start, length) for document, start, length in pieces]),
            labels=np.concatenate(labels),
            position=np.concatenate([np.arange(length) for length in lengths]),
            segment=np.repeat(np.arange(len(pieces)), lengths),
        )

    def _answers(self, document: Document) -> Answers:
        record = record_of(document, "chat", "messages")
        try:
            return encode_answers(
                self._tokenizer,
                record["messages"],
                template=self._objective.template,
                tools=record.get("tools"),
                last=self._objective.answers == "last",
            )
        except TokenizerError as error:
            raise at_line(error, document) from error

    def _fitted(self, found: Answers, document: Document) -> Answers:
        longest = self._seq_len + 1
        if len(found.ids) > longest:
            if self._objective.too_long == "error":
                raise DataError(
                    f"a conversation must have at most seq_len = {self._seq_len} places",
                    value=len(found.ids) - 1,
                    file=document.file,
                    line=document.line,
                    remedy="Raise data.seq_len, or set data.objective.too_long to drop or crop.",
                )
            if self._objective.too_long == "drop":
                return Answers([], [])
        found = Answers(found.ids[:longest], found.learnt[:longest])
        return found if any(found.learnt[1:]) else Answers([], [])
