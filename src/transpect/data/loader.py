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
from transpect.data.buckets import bucketed
from transpect.data.collating import Example
from transpect.data.documents import Documents
from transpect.data.draws import draws
from transpect.data.lanes import EachAlone, Lanes, Order, check_options
from transpect.data.mixing import Mixed
from transpect.data.objectives.base import Encoded, Objective, Task
from transpect.data.packing import Plan
from transpect.data.passes import Endless, Passes, Pool, Stored, Whole
from transpect.data.sources.mixture import MixtureDocuments
from transpect.data.tokens.shards import TokenDocuments
from transpect.text.tokenizer import Tokenizer

Place = tuple[int, int]
"""Where a loader stands: a pass, and the row of it that comes next."""

BARREN: Final = 16
"""How many passes may follow each other that give nothing to predict."""


@dataclass(frozen=True, eq=False)
class _Pass:
    """Documents and their rows."""

    encoded: Encoded
    plan: Plan


@dataclass(frozen=True, eq=False)
class Taken:
    """The rows of a batch.

    Attributes:
        rows: of each its pass, its number there, and the pass's number.
    """

    rows: tuple[tuple[_Pass, int, int], ...]


@final
class Batches:
    """An endless iterator of full batches.

    The rows of epoch 0, 1, 2, … follow each other, each epoch in an order of its own, and every ``batch_size`` of them
    are a batch; so a batch may reach from one epoch into the next, and each token is predicted once an epoch. An epoch
    is one pass or several (see `transpect.data.passes`); a pass of which the objective can use nothing is passed over.

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
        bucket: rows of about one length follow each other in runs of so many (see `in_buckets`).

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
        bucket: int = 1,
    ) -> None:
        sizes = (("batch_size", batch_size), ("seq_len", seq_len), ("slots", slots), ("bucket", bucket))
        for name, size in sizes:
            if size < 1:
                raise ConfigError(f"{name} must be at least 1", value=size)
        self._batch_size, self._seed = batch_size, seed
        self._task = objective.build(tokenizer, seq_len)
        self._bucket = bucket
        if bucket > 1 and (self._task.width is not None or objective.remembers is not None):
            raise ConfigError(
                "buckets are for rows that are padded, and these are filled or go on from batch to batch",
                value=f"bucket: {bucket}",
                remedy="Leave data.bucket out, or set data.objective.pack: false.",
            )
        self._order: Order = EachAlone()
        if objective.remembers is not None:
            numbered = not objective.separates
            self._order = Lanes(objective.remembers, batch_size, slots, seq_len, numbered)
        self._passes = passes(documents, self._task, tokenizer, seed)
        if isinstance(self._passes, Whole) and not self.n_rows:
            raise DataError("the objective must find something to predict in the documents", value=documents.size)
        self._options = {"objective": to_data(objective), "seq_len": seq_len, "seed": seed}
        self._options |= {"bucket": bucket} if bucket > 1 else {}
        self.place: Place = (0, 0)
        self._current: tuple[int, _Pass] | None = None

    # position

    @property
    def epoch(self) -> int:
        """How many times everything was read; of documents without end, how many passes are complete."""
        return self.epoch_at(self.place)

    @property
    def told(self) -> str:
        """What a person should know of what was read; empty for nothing."""
        return self.told_at(self.place)

    def state(self) -> dict[str, Any]:
        """Where it is, as JSON data: the next batch will begin with this row of this pass."""
        return self.state_at(self.place)

    def epoch_at(self, place: Place) -> int:
        """`epoch` of another place."""
        return self._passes.epoch(place[0])

    def told_at(self, place: Place) -> str:
        """`told` of another place."""
        return self._passes.told(place[0])

    def state_at(self, place: Place) -> dict[str, Any]:
        """`state` of another place."""
        data = {"epoch": place[0], "row": place[1], "data": self._fingerprint}
        return {**data, "order": self._order.options} if self._order.options else data

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
        self.place = int(state["epoch"]), int(state["row"])

    # batches

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.made(self.take())

    def take(self) -> Taken:
        """The rows of the next batch, not yet made: it moves on."""
        rows = [self._next_row() for _ in range(self._batch_size)]
        return Taken(tuple(rows))

    def made(self, taken: Taken) -> Batch:
        """The batch of some rows; a function of them alone, so that threads may share the work."""
        examples = [self._example(run, row, number) for run, row, number in taken.rows]
        return self._order.placed(self._task.collate(examples), taken.rows[0][1], training=True)

    def once(self) -> Iterator[Batch]:
        """One pass in the order of the documents, the last batch as small as it comes; for evaluation.

        The same at each call, masks included, and without effect on what ``next`` will give.

        Raises:
            ConfigError: documents without end.
        """
        for run in self._ordered():
            rows = (self._example(run, row, "once") for row in range(len(run.plan)))
            first = 0
            while batch := list(islice(rows, self._batch_size)):
                yield self._order.placed(self._task.collate(batch), first, training=False)
                first += len(batch)

    # measures

    @property
    def n_documents(self) -> int | None:
        """How many documents there are; None is without end."""
        return self._passes.size

    @property
    def n_rows(self) -> int:
        """How many rows one pass has, in the order of the documents; another order may pack into a few more or less.

        Raises:
            ConfigError: documents without end.
        """
        return sum(len(run.plan) for run in self._ordered())

    @property
    def n_tokens(self) -> int:
        """How many tokens of documents one pass reads (of pairs: of targets), padding and frames left out.

        Raises:
            ConfigError: documents without end.
        """
        return sum(int(run.plan.pieces[:, 2].sum()) for run in self._ordered())

    @property
    def n_characters(self) -> int:
        """How many characters of text one pass predicts, to turn nats into bits per character.

        Raises:
            ConfigError: documents without end.
        """
        return sum(run.encoded.characters for run in self._ordered())

    def _ordered(self) -> Iterator[_Pass]:
        """Everything once in the order of the documents; what is held whole is planned once."""
        if isinstance(self._passes, Whole):
            return iter((self._first,))
        return (self._planned(encoded, None) for encoded in self._passes.in_order())

    @cached_property
    def _first(self) -> _Pass:
        return self._planned(next(self._passes.in_order()), None)

    def _next_row(self) -> tuple[_Pass, int, int]:
        number, run = self._next_pass()
        row = self.place[1]
        self.place = (number, row + 1) if row + 1 < len(run.plan) else (number + 1, 0)
        return run, row, number

    def _next_pass(self) -> tuple[int, _Pass]:
        """This pass; where it has no rows, the first one after it that has."""
        first, _ = self.place
        for number in range(first, first + BARREN):
            run = self._pass(number)
            if len(run.plan):
                self.place = (number, self.place[1] if number == first else 0)
                return number, run
        raise DataError(
            "documents must give something to predict",
            value=f"nothing in the passes {first} to {first + BARREN - 1}",
            remedy="They are empty, or dropped as too long: look at the source, or raise data.seq_len.",
        )

    def _example(self, run: _Pass, row: int, number: int | str) -> Example:
        return self._task.example(run.encoded, run.plan[row], (self._seed, number, row))

    def _pass(self, number: int) -> _Pass:
        if self._current is None or self._current[0] != number:
            generator = draws("order", self._seed, number)
            self._current = (number, self._planned(self._passes.encoded(number), generator))
        return self._current[1]

    def _planned(self, encoded: Encoded, generator: np.random.Generator | None) -> _Pass:
        plan = self._task.plan(encoded, generator)
        if generator is not None and self._bucket > 1:
            plan = bucketed(plan, self._bucket, generator)
        return _Pass(encoded, self._order.arranged(plan))

    @cached_property
    def _fingerprint(self) -> str:
        """A digest of the options and of all tokens (of an endless row: of its first ones)."""
        digest = blake2b(json.dumps(self._options).encode(), digest_size=16)
        self._passes.update(digest)
        return digest.hexdigest()


def passes(documents: Documents, task: Task, tokenizer: Tokenizer, seed: int) -> Passes:
    """The passes in which documents are read."""
    if isinstance(documents, MixtureDocuments):
        return Mixed(documents.mixture, [pool(part, task, tokenizer, seed) for part in documents.parts], seed)
    return pool(documents, task, tokenizer, seed)


def pool(documents: Documents, task: Task, tokenizer: Tokenizer, seed: int) -> Pool:
    """Documents that are no mixture."""
    if isinstance(documents, TokenDocuments):
        return Stored(documents, task, tokenizer, seed)
    return Endless(documents, task) if documents.size is None else Whole(documents, task)
