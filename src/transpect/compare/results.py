"""``results.jsonl``: a line for each variant and seed, and what the lines of a variant say together."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from transpect.base.codec import from_data
from transpect.base.errors import ConfigError, DataError
from transpect.compare.measure import Measured

RESULTS = "results.jsonl"


@dataclass(frozen=True)
class Result:
    """One variant, trained with one seed.

    Attributes:
        variant: its name.
        seed: of weights, order, masks and dropout.
        training: the digest of the recipe that it was trained by.
        evaluation: the digest of the model that was evaluated, and on how much.
        n_parameters: of that model.
        steps: updates made.
        tokens: read in training.
        batches: a digest of every batch that training read, in order; equal for all variants of a seed.
        lengths: for each multiple of the training length (as text, for JSON), what was measured there.
        error: why training came to nothing, where it did.
    """

    variant: str
    seed: int
    training: str
    evaluation: str
    n_parameters: int
    steps: int
    tokens: int
    batches: str
    lengths: dict[str, Measured]
    error: str | None = None

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What tells it from all others."""
        return self.variant, self.seed, self.training, self.evaluation


@dataclass(frozen=True)
class Spread:
    """Several numbers as one.

    Attributes:
        mean: their mean.
        deviation: the standard deviation of the sample, √(Σ(x − mean)² / (n − 1)); None of a single number.
        n: how many.
    """

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        """The spread of at least one number."""
        return cls(mean(numbers), stdev(numbers) if len(numbers) > 1 else None, len(numbers))

    def __str__(self) -> str:
        return self.text(3)

    def text(self, digits: int) -> str:
        """``mean ± deviation``."""
        return f"{self.mean:.{digits}f}" + ("" if self.deviation is None else f" ± {self.deviation:.{digits}f}")


class ResultsFile:
    """The lines of a comparison's directory, kept in memory and on the disk.

    Args:
        path: the file; lines of other comparisons in it are kept.

    Raises:
        DataError: a line that is no result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results: dict[tuple[str, int, str, str], Result] = {}
        for result in read_results(path) if path.is_file() else []:
            self._results[result.key] = result

    def get(self, key: tuple[str, int, str, str]) -> Result | None:
        """The line of a key."""
        return self._results.get(key)

    def add(self, results: Iterable[Result]) -> None:
        """Take lines up, in place of former ones of their keys; the file is replaced as a whole."""
        self._results |= {result.key: result for result in results}
        lines = [json.dumps(asdict(result), ensure_ascii=False) for result in self._results.values()]
        fresh = self._path.with_name(f".{self._path.name}.new")
        fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.replace(fresh, self._path)


def read_results(path: Path) -> list[Result]:
    """The lines of a file.

    Raises:
        DataError: a line that is no result, with its number.
    """
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            data: Any = json.loads(line.decode())
            found.append(from_data(Result, data))
        except (ValueError, ConfigError) as error:
            raise DataError(
                f"not a result of a comparison: {error}",
                file=path,
                line=number,
                remedy="It was edited or damaged: delete the line, and its run is evaluated again.",
            ) from error
    return found


def spread_at(results: Sequence[Result], times: int, *, last: bool = False) -> Spread | None:
    """Mean and spread over seeds at a length; None where no seed has a finite number there."""
    measured = [result.lengths[str(times)] for result in results if str(times) in result.lengths]
    losses = [one.last if last else one.loss for one in measured]
    return Spread.of(losses) if losses and all(map(math.isfinite, losses)) else None
