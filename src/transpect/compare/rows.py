"""Rows to evaluate on: of exactly n times the training length, cut from the same valid text at every length; or, where
nothing but the training length is asked for, whatever rows the recipe makes of its valid text.

Axes: B batch, T query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from transpect.base.errors import ConfigError, DataError
from transpect.data.batch import Batch
from transpect.data.collating import Example
from transpect.data.documents import Documents
from transpect.data.objectives.base import Encoded, Task
from transpect.data.packing import Plan
from transpect.text.tokenizer import Tokenizer
from transpect.train.material import documents
from transpect.train.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one length.

    Attributes:
        times: n.
        part: L, the training length; a row has n·L tokens, or at most L where only those are read.
    """

    times: int
    part: int
    examples: Sequence[Example]
    task: Task

    def batches(self, size: int) -> Iterator[Batch]:
        """``size`` rows at a time, at least one."""
        step = max(1, size)
        for start in range(0, len(self.examples), step):
            yield self.task.collate(self.examples[start : start + step])


def valid_documents(recipe: Recipe) -> Documents:
    """What a recipe is evaluated on.

    Raises:
        ConfigError: nothing.
    """
    valid = documents(recipe)[1]
    if valid is None:
        raise ConfigError(
            "a comparison needs a text to evaluate on", value="data.valid: null", remedy="Name one: data.valid."
        )
    return valid


def cut_rows(
    recipe: Recipe, tokenizer: Tokenizer, lengths: Sequence[int], tokens: int | None = None
) -> dict[int, Rows]:
    """Rows for each length.

    A document gives as many tokens as fill rows of the greatest length, and the rest is left out; so the rows of every
    length hold the same text. Positions begin at 0 in each row, and a row sees nothing of another, as in training. Of
    masked objectives, what is hidden depends on length and row only: it is the same for every variant and seed.

    At the training length alone all rows are kept, with whatever documents share them.

    Args:
        lengths: multiples n of the training length.
        tokens: at most so many a length, from the beginning of the text, but at least a row of the greatest length.

    Raises:
        DataError: no document fills a row of the greatest length.
    """
    valid, part, longest = valid_documents(recipe), recipe.seq_len, max(lengths)
    as_they_are = only_trained(lengths)
    limit = None if tokens is None else max(1, tokens // (longest * part)) * longest * part
    built = {n: recipe.objective.build(tokenizer, n * part) for n in lengths}
    whole = built[longest].encode(valid, valid.segmenter)
    kept = {} if as_they_are else _filled(built[longest], whole, longest * part)
    if not kept and not as_they_are:
        width = longest * part
        raise DataError(
            f"some valid document must have the {width} tokens of a row at {longest} times the training length",
            value=int(whole.streams[0].lengths.max()),
            remedy="Compare at --lengths 1, or read longer documents, e.g. whole files: data.valid: {…, by: file}.",
        )
    found = {}
    for n in sorted(lengths):
        rows = _every(built[n], whole, part) if as_they_are else _full(built[n], whole, n * part, kept)
        found[n] = Rows(n, part, rows if limit is None else rows[: limit // (n * part)], built[n])
    return found


def only_trained(lengths: Sequence[int]) -> bool:
    """Whether nothing but the training length is asked for."""
    return list(lengths) == [1]


def _every(task: Task, encoded: Encoded, width: int) -> list[Example]:
    plan = task.plan(encoded, None)
    return [_example(task, encoded, plan, row, width) for row in range(len(plan))]


def _filled(task: Task, encoded: Encoded, width: int) -> dict[int, int]:
    """For each document, up to which place full rows of ``width`` tokens reach."""
    plan = task.plan(encoded, None)
    ends: dict[int, int] = {}
    for row in range(len(plan)):
        pieces = plan[row]
        if _is_full(_example(task, encoded, plan, row, width), width):
            for document, start, length in pieces:
                ends[document] = max(ends.get(document, 0), start + length)
    return ends


def _full(task: Task, encoded: Encoded, width: int, kept: dict[int, int]) -> list[Example]:
    plan = task.plan(encoded, None)
    rows = []
    for row in range(len(plan)):
        if all(start + length <= kept.get(document, 0) for document, start, length in plan[row]):
            example = _example(task, encoded, plan, row, width)
            if _is_full(example, width):
                rows.append(example)
    return rows


def _example(task: Task, encoded: Encoded, plan: Plan, row: int, width: int) -> Example:
    return task.example(encoded, plan[row], ("compare", width, row))


def _is_full(example: Example, width: int) -> bool:
    """One sequence from position 0 to its last place; not several documents, and no rest of one."""
    return len(example.ids) == width and bool((example.position == np.arange(width)).all())
