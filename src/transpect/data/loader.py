"""Batches without end, from any place: what comes next is a function of the seed and of how many rows have gone by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, final

import numpy as np

from transpect.base.codec import to_data
from transpect.base.errors import ConfigError, DataError
from transpect.data.batch import Batch
from transpect.data.documents import Document, Documents
from transpect.data.draws import draws
from transpect.data.lanes import EachAlone, Lanes, Order, check_options
from transpect.data.objectives.base import Encoded, Example, Objective
from transpect.data.packing import Plan
from transpect.text.tokenizer import Tokenizer

BLOCK: Final = 1024
"""How many documents of an endless row make an epoch."""

BARREN: Final = 16
"""How many epochs of an endless row may follow each other that give nothing to predict."""


@dataclass(frozen=True, eq=False)
class _Pass:
    """One epoch: its documents and its rows."""

    encoded: Encoded
    plan: Plan


@final
class Batches:
    """An endless iterator of full batches.

    The rows of epoch 0, 1, 2, … follow each other, each epoch in an order of its own, and every ``batch_size`` of them
    are a batch; so a batch may reach from one epoch into the next, and each token is predicted once an epoch. Documents
    with an end are encoded once, here. Of documents without end, an epoch is the next `BLOCK` of them, encoded when its
    turn comes; a block of which the objective can use nothing is passed over.

    Where the objective remembers, rows go on from batch to batch instead (see `transpect.data.lanes`), and a batch
    reaches into no other epoch.

    Args:
        documents: what to read.
        objective: what to make of it.
        tokenizer: the text's.
        batch_size: B.
        seq_len: the longest row.
        seed: of orders and of masks.
        slots: micro-batches of an update, which the order of rows that go on depends on.

    Raises:
        ConfigError: sizes below 1, or a tokenizer that lacks what the objective needs.
        DataError: a document that the objective can't use, or none that it can.
    """

    def __init__(
        self,
        documents: Documents,
        objective: Objective,
        tokenizer: Tokenizer,
        *,
        batch_size: int,
        seq_len: int,
        seed: int = 0,
        slots: int = 1,
    ) -> None:
        for name, size in (("batch_size", batch_size), ("seq_len", seq_len), ("slots", slots)):
            if size < 1:
                raise ConfigError(f"{name} must be at least 1", value=size)
        self._documents, self._batch_size, self._seed = documents, batch_size, seed
        self._task = objective.build(tokenizer, seq_len)
        self._order: Order = EachAlone()
        if objective.remembers is not None:
            numbered = not objective.separates
            self._order = Lanes(objective.remembers, batch_size, slots, seq_len, numbered)
        self._whole = None if documents.size is None else self._task.encode(documents, documents.segmenter)
        if self._whole is not None and not self.n_rows:
            raise DataError("the objective must find something to predict in the documents", value=documents.size)
        self._options = {"objective": to_data(objective), "seq_len": seq_len, "seed": seed}
        self._epoch, self._row = 0, 0
        self._current: tuple[int, _Pass] | None = None

    # position

    @property
    def epoch(self) -> int:
        """How many passes are complete."""
        return self._epoch

    def state(self) -> dict[str, Any]:
        """Where it is, as JSON data: the next batch will begin with this row of this epoch."""
        place = {"epoch": self._epoch, "row": self._row, "data": self._fingerprint}
        return {**place, "order": self._order.options} if self._order.options else place

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken: the batches that follow are the same bit for bit.

        The batch size may be another one, unless rows go on from batch to batch; data, tokens, objective, ``seq_len``
        and seed may not.

        Raises:
            DataError: it was taken from something else.
            ConfigError: rows go on, and the batch size or ``slots`` is another one.
        """
        if state.get("data") != self._fingerprint:
            raise DataError(
                "a run must go on with the data, tokenizer, objective, seq_len and seed that it was started with",
                remedy="Restore them, or start a new run in another directory.",
            )
        check_options(state.get("order", {}), self._order.options)
        self._epoch, self._row = int(state["epoch"]), int(state["row"])

    # batches

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self._next_pass()
        row = self._row
        batch = self._task.collate([self._next_example() for _ in range(self._batch_size)])
        return self._order.placed(batch, row, training=True)

    def once(self) -> Iterator[Batch]:
        """One pass in the order of the documents, the last batch as small as it comes; for evaluation.

        The same at each call, masks included, and without effect on what ``next`` will give.

        Raises:
            ConfigError: documents without end.
        """
        run = self._ordered
        rows = (self._example(run, row, "once") for row in range(len(run.plan)))
        first = 0
        while batch := list(islice(rows, self._batch_size)):
            yield self._order.placed(self._task.collate(batch), first, training=False)
            first += len(batch)

    # measures

    @property
    def n_documents(self) -> int | None:
        """How many documents there are; None is without end."""
        return self._documents.size

    @property
    def n_rows(self) -> int:
        """How many rows one pass has, in the order of the documents; another order may pack into a few more or less.

        Raises:
            ConfigError: documents without end.
        """
        return len(self._ordered.plan)

    @property
    def n_tokens(self) -> int:
        """How many tokens of documents one pass reads (of pairs: of targets), padding and frames left out.

        Raises:
            ConfigError: documents without end.
        """
        return int(self._ordered.plan.pieces[:, 2].sum())

    @property
    def n_characters(self) -> int:
        """How many characters of text one pass predicts, to turn nats into bits per character.

        Raises:
            ConfigError: documents without end.
        """
        return self._ordered.encoded.characters

    @cached_property
    def _ordered(self) -> _Pass:
        """One pass in the order of the documents."""
        if self._whole is None:
            raise ConfigError(
                "documents without end have no whole pass", remedy="Say how many: stories: 500 in the source."
            )
        return self._planned(self._whole, None)

    def _next_example(self) -> Example:
        run = self._next_pass()
        example = self._example(run, self._row, self._epoch)
        self._row += 1
        if self._row == len(run.plan):
            self._epoch, self._row = self._epoch + 1, 0
        return example

    def _next_pass(self) -> _Pass:
        """The pass of this epoch; where it has no rows, that of the first one after it that has."""
        for _ in range(BARREN):
            run = self._pass(self._epoch)
            if len(run.plan):
                return run
            self._epoch += 1
        raise DataError(
            "documents without end must give something to predict",
            value=f"nothing in the {BARREN * BLOCK} documents before number {self._epoch * BLOCK}",
            remedy="They are empty, or dropped as too long: look at the source, or raise data.seq_len.",
        )

    def _example(self, run: _Pass, row: int, epoch: int | str) -> Example:
        return self._task.example(run.encoded, run.plan[row], (self._seed, epoch, row))

    def _pass(self, epoch: int) -> _Pass:
        if self._current is None or self._current[0] != epoch:
            block = range(epoch * BLOCK, (epoch + 1) * BLOCK)
            encoded = self._encoded(block) if self._whole is None else self._whole
            self._current = (epoch, self._planned(encoded, draws("order", self._seed, epoch)))
        return self._current[1]

    def _planned(self, encoded: Encoded, generator: np.random.Generator | None) -> _Pass:
        return _Pass(encoded, self._order.arranged(self._task.plan(encoded, generator)))

    def _encoded(self, numbers: range) -> Encoded:
        documents: Iterator[Document] = (self._documents[number] for number in numbers)
        return self._task.encode(documents, self._documents.segmenter)

    @cached_property
    def _fingerprint(self) -> str:
        """A digest of the options and of all tokens (of an endless row: of its first ones)."""
        encoded = self._encoded(range(16)) if self._whole is None else self._whole
        digest = blake2b(json.dumps(self._options).encode(), digest_size=16)
        for stream in encoded.streams:
            digest.update(stream.starts.tobytes() + stream.flat.tobytes())
        return digest.hexdigest()
