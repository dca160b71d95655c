"""Predict each next token of one long text, segment by segment, with a memory of the segments before.

A document of tokens t_1 … t_n is read as ``start t_1 … t_n`` and predicted as ``t_1 … t_n eos``, as in `causal`. The
documents of an epoch stand end to end, and that stream is cut into lanes which are read side by side (see
`transpect.data.lanes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from transpect.base.checks import within
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import shuffled
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Remembers, Task
from transpect.data.objectives.causal import Causal, CausalTask
from transpect.data.objectives.tokens import TakesTokens
from transpect.data.packing import Piece, Plan, alone
from transpect.data.ragged import Ints, Ragged
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Recurrent(Objective, kind="recurrent"):
    """Next-token prediction with segment-level recurrence (Dai et al. 2019, §3.2).

    Each layer sees, besides its inputs of a segment of ``seq_len`` tokens, its inputs of the ``memory`` tokens before,
    as they were computed then. Gradients stay within the segment. With a memory of M a token of the segment from place
    s on sees the keys from s − M on, so that what N layers together can know reaches back N·M places and the segment.

    Positions go on from segment to segment. Relative schemes (transformer_xl, rope, alibi, kerple, t5) make nothing of
    how far a lane has come; sinusoids do, and learned positions would end.

    Attributes:
        memory: M in training, in tokens; 0 remembers nothing.
        eval_memory: M in evaluation; None is as ``memory``.
        separate: a document does not see the documents before it (`adapt` puts `SameSegment` on the model), and has
            positions from 0. False lets the memory run on across their border, as the authors do.
    """

    memory: int
    eval_memory: int | None = None
    separate: bool = False

    needs: ClassVar[Needs] = Causal.needs

    def __post_init__(self) -> None:
        within("memory", self.memory, 0)
        within("eval_memory", self.eval_memory, 0)

    @property
    def separates(self) -> bool:
        return self.separate

    @property
    def remembers(self) -> Remembers:
        return Remembers(self.memory, self.memory if self.eval_memory is None else self.eval_memory)

    def build(self, tokenizer: Tokenizer, seq_len: int) -> RecurrentTask:
        self._check_tokenizer(tokenizer, seq_len, least=1)
        return RecurrentTask(self, tokenizer, seq_len)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return Causal().generation(tokenizer)


@final
class RecurrentTask(Task, TakesTokens):
    """Rows of pieces, as in `CausalTask`; a plan is one stream, which the loader cuts into lanes."""

    def __init__(self, objective: Recurrent, tokenizer: Tokenizer, seq_len: int) -> None:
        super().__init__(tokenizer, seq_len)
        self._separate = objective.separate
        self._causal = CausalTask(Causal(separate=objective.separate), tokenizer, seq_len)

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        return self._causal.encode_batch(documents, segmenter)

    def encode_tokens(self, rows: Ragged, characters: int) -> Encoded:
        return self._causal.encode_tokens(rows, characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        places = encoded.streams[0].lengths - 1
        order = np.arange(len(places)) if generator is None else shuffled(len(places), generator)
        return alone(np.stack([order, np.zeros_like(order), places[order]], 1))

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        if not pieces:  # of a lane that is over
            return Example(_NOTHING, _NOTHING, _NOTHING, _NOTHING)
        row = self._causal.example(encoded, pieces, key)
        if not self._separate:
            return row
        documents, starts, lengths = np.array(pieces).T
        within_piece = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return replace(row, position=np.repeat(starts, lengths) + within_piece, segment=np.repeat(documents, lengths))


_NOTHING: Ints = np.empty(0, np.int64)
