"""Predict each next token.

A document of tokens t_1 … t_n is read as ``start t_1 … t_n`` and predicted as ``t_1 … t_n eos``: its first token from
the start token alone, and its end too. The start token is the tokenizer's bos, or its eos where it has no bos (GPT-2's
way). So a document's mean loss is −ln P(document, end) / (n + 1), to be set against a world's exact floor, and nothing
is ever predicted across the border of two documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from transpect.base.errors import ConfigError
from transpect.data.best_fit import Fit, check_fit, filled
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import shuffled
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task, filler
from transpect.data.objectives.tokens import TakesTokens
from transpect.data.packing import Piece, Plan, alone, cut, joined
from transpect.data.ragged import Ragged
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Causal(Objective, kind="causal"):
    """Next-token prediction.

    Attributes:
        pack: several documents share a row of exactly ``seq_len``; False is a row each, padded to the longest in the
            batch. A document longer than ``seq_len`` is cut into pieces of that length and a rest, each with positions
            from 0; a later piece sees nothing of an earlier one, and its first token is read but predicted in the
            piece before.
        separate: packed documents do not see each other: each has its own segment and positions from 0 (`adapt` puts
            `SameSegment` on the model). False is one stream of all
            documents cut into rows, where a token sees the documents before its own in the row, as GPT-2 was trained.
        fit: how rows of separate documents are filled, by ``first`` or ``best`` fit (see `filled`).
    """

    pack: bool = True
    separate: bool = True
    fit: Fit = "first"

    needs: ClassVar[Needs] = Needs(model="decoder", roles=(("eos",),), looks_back=True)

    def __post_init__(self) -> None:
        if not self.pack and not self.separate:
            raise ConfigError(
                "documents in rows of their own are always separate",
                value="pack: false, separate: false",
                remedy="Leave `separate` out, or set pack: true.",
            )
        check_fit(self.fit, self.pack and self.separate)

    @property
    def separates(self) -> bool:
        return self.pack and self.separate

    def build(self, tokenizer: Tokenizer, seq_len: int) -> CausalTask:
        self._check_tokenizer(tokenizer, seq_len, least=1)
        return CausalTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        start, eos = start_and_end(tokenizer)
        # prompt_start_token_id is transpect's own: a prompt begins with it also where it is no bos to the tokenizer
        return {
            "bos_token_id": start,
            "eos_token_id": eos,
            "pad_token_id": filler(tokenizer),
            "prompt_start_token_id": start,
        }


def start_and_end(tokenizer: Tokenizer) -> tuple[int, int]:
    """The ids that a document begins and ends with."""
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    assert eos is not None
    return (eos if bos is None else bos), eos


@final
class CausalTask(Task, TakesTokens):
    """Rows of pieces; a document is held as ``start t_1 … t_n eos``, of which n + 1 places are read."""

    def __init__(self, objective: Causal, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, seq_len if objective.pack else None)
        self._objective, self._tokenizer, self._seq_len = objective, tokenizer, seq_len
        self._start, self._end = start_and_end(tokenizer)

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        texts = [document.text for document in documents]
        rows = self._tokenizer.encode_batch(texts, parse_special=False)
        return Encoded((Ragged.of([[self._start, *row, self._end] for row in rows]),), sum(map(len, texts)))

    def encode_tokens(self, rows: Ragged, characters: int) -> Encoded:
        return Encoded((rows.framed([self._start], [self._end]),), characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        places = encoded.streams[0].lengths - 1
        if self._objective.pack and not self._objective.separate:
            order = np.arange(len(places)) if generator is None else shuffled(len(places), generator)
            plan = joined(places, order, self._seq_len)
            return plan if generator is None else plan.reordered(shuffled(len(plan), generator))
        pieces = cut(places, self._seq_len)
        if generator is not None:
            pieces = pieces[shuffled(len(pieces), generator)]
        if not self._objective.pack:
            return alone(pieces)
        return filled(pieces, self._seq_len, 0, self._objective.fit, generator)

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        stream = encoded.streams[0]
        lengths = [length for _, _, length in pieces]
        segments = range(len(pieces)) if self._objective.separate else [0] * len(pieces)
        runs = lengths if self._objective.separate else [sum(lengths)]
        return Example(
            ids=np.concatenate([stream.part(document, start, length) for document, start, length in pieces]),
            labels=np.concatenate([stream.part(document, start + 1, length) for document, start, length in pieces]),
            position=np.concatenate([np.arange(run) for run in runs]),
            segment=np.repeat(np.array(segments), lengths),
        )
