"""What the files of a run say of it: ``recipe.yaml`` and ``metrics.jsonl``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from transpect.base.codec import Data, from_data, load_yaml
from transpect.base.errors import DataError
from transpect.train.best import Best
from transpect.train.progress import Progress
from transpect.train.resume import METRICS, RECIPE
from transpect.train.watching.logger import read_metrics

State = Literal["finished", "early", "active", "stopped"]
Line = dict[str, Any]

ALIVE = 120.0
"""Seconds after its last line in which a run counts as active; more where its lines come more seldom."""
RECENT = 10
"""Lines that the speed is taken from."""


@dataclass(frozen=True)
class Summary:
    """A run in a line.

    Attributes:
        folder: its directory.
        recipe: as plain data.
        lines: of its metrics.
        state: ``finished`` (all steps made), ``early`` (no better evaluation for ``patience`` of them), ``active`` (it
            has written a moment ago) or ``stopped``.
        metric: by which its best is the best.
        best_step, best_value: of its best evaluation; None without one.
        age: seconds since its last line.
    """

    folder: Path
    recipe: Data
    lines: list[Line]
    state: State
    metric: str
    best_step: int | None
    best_value: float | None
    age: float

    @property
    def step(self) -> int:
        """Updates made, as far as lines tell."""
        return int(self.lines[-1]["step"]) if self.lines else 0

    @property
    def last(self) -> int:
        """Updates that it should make."""
        return int(_train(self.recipe).get("max_steps", self.step))

    @property
    def seconds(self) -> float:
        """Spent on updates."""
        return float(self.lines[-1].get("seconds") or 0.0) if self.lines else 0.0

    @property
    def speed(self) -> float | None:
        """Tokens a second, the median of the last lines."""
        found = [line["tokens_per_s"] for line in self.lines[-RECENT:] if line.get("tokens_per_s") is not None]
        return median(found) if found else None

    @property
    def measures(self) -> list[str]:
        """What it measured, in the order in which it came up."""
        return list(dict.fromkeys(name for line in self.lines for name in line if name != "step"))

    def curve(self, measure: str) -> list[tuple[int, float]]:
        """(step, value) wherever there is a number."""
        return [(int(line["step"]), float(line[measure])) for line in self.lines if line.get(measure) is not None]

    def as_dict(self) -> dict[str, Any]:
        """All but the lines, as JSON data."""
        return {
            "run": str(self.folder),
            "state": self.state,
            "step": self.step,
            "steps": self.last,
            "metric": self.metric,
            "best_step": self.best_step,
            "best_value": self.best_value,
            "tokens_per_s": self.speed,
            "seconds": self.seconds,
            "age": self.age,
        }


def find_runs(folder: Path) -> list[Path]:
    """The runs in a directory, or below it at any depth, by name; links to directories are not followed.

    Raises:
        DataError: no such directory.
    """
    if not folder.is_dir():
        raise DataError("no such directory", file=folder, remedy="Give one that holds runs.")
    return sorted(_runs(folder))


def _runs(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        if RECIPE in files and METRICS in files:
            yield Path(root)
            folders.clear()  # what lies in a run is its own
        folders[:] = [name for name in folders if not name.startswith(".")]


def summary_of(folder: Path, now: float | None = None) -> Summary:
    """Read a run.

    Args:
        folder: the run directory.
        now: seconds since the epoch; None is the clock's.

    Raises:
        DataError: it is no run, or its files can't be read.
    """
    if not (folder / RECIPE).is_file():
        raise DataError("a run directory has a recipe.yaml", file=folder, remedy="`transpect runs DIR` lists runs.")
    recipe, _ = load_yaml(folder / RECIPE)
    lines: list[Line] = [dict(line) for line in read_metrics(folder) if isinstance(line, dict) and "step" in line]
    train = _train(recipe)
    best = from_data(Best, train.get("best") or {})
    progress = Progress()
    for line in lines:
        if any(name.startswith("valid_") for name in line):
            progress.step = int(line["step"])
            value = line.get(best.metric)
            progress.judge(float("nan") if value is None else float(value), best, float(train.get("min_delta") or 0.0))
    age = max(0.0, (time.time() if now is None else now) - (folder / METRICS).stat().st_mtime)
    state: State = "stopped"
    if lines and int(lines[-1]["step"]) >= int(train.get("max_steps") or 0):
        state = "finished"
    elif progress.is_stale(train.get("patience")):
        state = "early"
    elif age < max(ALIVE, 3 * _interval(lines)):
        state = "active"
    return Summary(folder, recipe, lines, state, best.metric, progress.best_step, progress.best_value, age)


def _interval(lines: list[Line]) -> float:
    """Seconds between the last two lines, of updates."""
    last = [float(line.get("seconds") or 0.0) for line in lines[-2:]]
    return last[-1] - last[0] if len(last) == 2 else 0.0


def _train(recipe: Data) -> Data:
    found = recipe.get("train")
    return found if isinstance(found, dict) else {}
