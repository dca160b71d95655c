"""Which checkpoints are the best: by any measure of an evaluation, several of them, ties broken one way."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from transpect.base.checks import within
from transpect.base.errors import ConfigError
from transpect.train.watching.logger import Record

TOP: Final = "top"
"""Where a run keeps its best checkpoints when it keeps several, as ``top/step-300/``; the best is ``best/`` too."""
LOWER: Final = ("loss", "perplexity", "bits_per_character", "norm", "entropy")
"""What a measure is called of which less is better."""
HIGHER: Final = ("accuracy", "f1", "precision", "recall", "bleu", "chrf", "mrr", "map")
"""What one is called of which more is better."""


@dataclass(frozen=True)
class Best:
    """By what an evaluation is judged, and how many checkpoints are kept.

    Of equal values the earlier one is the better: a later one must be truly better to take its place. A value that is
    no number is never among the best.

    Attributes:
        metric: a measure of the line that an evaluation gives in ``metrics.jsonl``.
        mode: ``min`` or ``max``; None is what the metric's name says (a loss: min, an accuracy: max).
        keep: how many checkpoints; the best is always ``best/``, and from 2 on each is ``top/step-N/``.
    """

    metric: str = "valid_loss"
    mode: Literal["min", "max"] | None = None
    keep: int = 1

    def __post_init__(self) -> None:
        within("keep", self.keep)
        if self.mode is None and self._named() is None:
            raise ConfigError(
                "mode must be min or max where the name of the metric does not tell",
                value=self.metric,
                remedy="Add e.g. mode: max.",
            )

    @property
    def sign(self) -> int:
        """1 where less is better, −1 where more is."""
        return 1 if (self.mode or self._named()) == "min" else -1

    def value_in(self, record: Record) -> float:
        """The metric in a line of measures.

        Raises:
            ConfigError: it is not there.
        """
        if self.metric not in record:
            raise ConfigError(
                "train.best.metric must be a measure of an evaluation",
                value=self.metric,
                remedy=f"There are {', '.join(name for name in record if name != 'step')}.",
            )
        return float(record[self.metric])

    def improves(self, value: float, on: float | None, by: float = 0.0) -> bool:
        """Whether ``value`` is better than ``on`` by more than ``by``; whatever is a number is better than nothing."""
        if math.isnan(value):
            return False
        return on is None or self.sign * value < self.sign * on - by

    def ranked(self, kept: Iterable[tuple[int, float]], step: int, value: float) -> list[tuple[int, float]]:
        """The best (step, value), best first, with one more candidate."""
        candidates = [*kept, *([] if math.isnan(value) else [(step, value)])]
        return sorted(candidates, key=lambda one: (self.sign * one[1], one[0]))[: self.keep]

    def _named(self) -> Literal["min", "max"] | None:
        name = self.metric.rpartition("/")[0] or self.metric
        if name.endswith(HIGHER):
            return "max"
        return "min" if name.endswith(LOWER) else None


def folder_of(run: Path, step: int) -> Path:
    """Where a checkpoint among the best is kept."""
    return run / TOP / f"step-{step}"


def remove_others(run: Path, steps: Iterable[int]) -> None:
    """Remove what is no longer among the best; to be called when a state that names the others is on the disk, so that
    whatever a state names is there."""
    wanted = {folder_of(run, step).name for step in steps}
    for folder in (run / TOP).glob("step-*"):
        if folder.name not in wanted:
            shutil.rmtree(folder, ignore_errors=True)
