"""What a recipe makes of its data: how long rows are, and how many tokens are predicted, seen on its first batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from transpect.core.config import ModelConfig
from transpect.data.batch import Batch
from transpect.data.loader import Batches
from transpect.train.activations import Checkpoint
from transpect.train.criteria.tokens import CrossEntropy
from transpect.train.material import gathered
from transpect.train.planning.parts import Work
from transpect.train.recipe import Recipe

LOOKED_AT = 16
"""Micro-batches that are drawn."""


@dataclass(frozen=True)
class Reading:
    """A recipe with its data looked at.

    Attributes:
        recipe: with nothing left open.
        config: the model as it is trained.
        fullest: the largest micro-batch that was drawn, which memory goes by.
        mean: the mean one, which time goes by.
        evaluated: labels of a batch of evaluation; 0 without one.
        evaluations: batches of one evaluation.
    """

    recipe: Recipe
    config: ModelConfig
    fullest: Work
    mean: Work
    evaluated: int
    evaluations: int


def work_of(recipe: Recipe) -> Reading:
    """Read a recipe's data as a run does, and draw a few batches.

    Raises:
        ConfigError: parts that do not fit each other.
        DataError: data that can't be read.
    """
    read = gathered(recipe)
    full, train, valid, tokenizer = read.recipe, read.train, read.valid, read.tokenizer
    objective, spec = full.objective, full.train
    objective.check(full.model.config, tokenizer, full.seq_len)
    batches = Batches(
        train,
        objective,
        tokenizer,
        batch_size=spec.batch_size,
        seq_len=full.seq_len,
        seed=spec.seed,
        slots=spec.accumulate,
        bucket=full.data.bucket,
    )
    works = [work_of_batch(batch, full) for batch in islice(batches, LOOKED_AT)]
    evaluated = evaluations = 0
    if valid is not None:
        size = spec.eval_batch_size or spec.batch_size
        held = Batches(valid, objective, tokenizer, batch_size=size, seq_len=full.seq_len, seed=spec.seed)
        evaluated = next(held.once()).n_labels
        evaluations = -(-held.n_rows // size)
    return Reading(full, objective.adapt(full.model.config), _largest(works), _mean(works), evaluated, evaluations)


def work_of_batch(batch: Batch, recipe: Recipe) -> Work:
    """One micro-batch as work."""
    rows, length = batch.ids.shape
    return Work(
        rows=rows,
        length=length,
        source=0 if batch.source_ids is None else batch.source_ids.shape[1],
        labels=max(1, batch.n_labels),
        tokens=batch.n_tokens,
        precision=recipe.train.precision,
        masked=batch.tags.start is None,
        checkpointed=isinstance(recipe.train.activations, Checkpoint),
        by_rows=isinstance(recipe.train.loss, CrossEntropy) and batch.stretch is None,
    )


def resident() -> int:
    """Bytes that this process holds, which a run that has read the same data holds as well; 0 where no system says."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def _largest(works: list[Work]) -> Work:
    return replace(
        works[0],
        length=max(work.length for work in works),
        source=max(work.source for work in works),
        labels=max(work.n_labels for work in works),
        tokens=max(work.n_tokens for work in works),
        masked=any(work.masked for work in works),
    )


def _mean(works: list[Work]) -> Work:
    def mean(values: list[int]) -> int:
        return max(1, round(sum(values) / len(values)))

    return replace(
        works[0],
        length=mean([work.length for work in works]),
        source=mean([work.source for work in works]) if works[0].source else 0,
        labels=mean([work.n_labels for work in works]),
        tokens=mean([work.n_tokens for work in works]),
        masked=any(work.masked for work in works),
    )
