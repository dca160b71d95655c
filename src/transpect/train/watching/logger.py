"""Who is told how a run is going: one small protocol, and the loggers that write files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from transpect.base.errors import DataError
from transpect.train.errors import TrainingError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Record = Mapping[str, float | int]
"""One line of metrics: ``step``, and measures by name."""


@dataclass(frozen=True)
class Run:
    """What a logger is told at the start.

    Attributes:
        out: the run directory.
        recipe: the resolved recipe as YAML.
        first: the step that the run stands at: 0, or where it goes on from.
        last: the step that it will end at.
        n_parameters: trainable numbers of the model.
        device: what it runs on.
    """

    out: Path
    recipe: str
    first: int
    last: int
    n_parameters: int
    device: str


class Logger(Protocol):
    """Told of a run as it goes. A logger may not touch the model."""

    def start(self, run: Run) -> None:
        """The run begins, or goes on."""

    def advance(self, step: int) -> None:
        """Another update has been made; called for each, so it should cost nothing."""

    def record(self, record: Record) -> None:
        """Measures of a step: ``step epoch loss lr grad_norm tokens tokens_per_s seconds``, and after an evaluation
        also ``valid_loss``, and ``valid_perplexity`` and ``valid_bits_per_character`` where they mean something; and
        what else the criterion says, under its own names and ``valid_…``."""

    def sample(self, step: int, prompt: str, text: str) -> None:
        """What the model wrote after a prompt, at an evaluation."""

    def note(self, text: str) -> None:
        """Something for a person to read."""

    def close(self) -> None:
        """The run is over, in whatever way."""


class Quiet:
    """A logger that does nothing; others change what they care about."""

    def start(self, run: Run) -> None:
        """Nothing."""

    def advance(self, step: int) -> None:
        """Nothing."""

    def record(self, record: Record) -> None:
        """Nothing."""

    def sample(self, step: int, prompt: str, text: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Loggers(Quiet):
    """Several loggers as one. Those that have been started are closed, whatever becomes of the others."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self._all = list(loggers)
        self._started = ExitStack()

    def start(self, run: Run) -> None:
        for logger in self._all:
            logger.start(run)
            self._started.callback(logger.close)

    def advance(self, step: int) -> None:
        for logger in self._all:
            logger.advance(step)

    def record(self, record: Record) -> None:
        for logger in self._all:
            logger.record(record)

    def sample(self, step: int, prompt: str, text: str) -> None:
        for logger in self._all:
            logger.sample(step, prompt, text)

    def note(self, text: str) -> None:
        for logger in self._all:
            logger.note(text)

    def close(self) -> None:
        self._started.close()


class LinesFile(Quiet):
    """A JSON object a line, each with its ``step``, in the order of steps."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self, run: Run) -> None:
        """Drop the lines after the step that the run goes on from, and a line that was cut off."""
        with self._changing():
            kept = kept_bytes(self._path, run.first)
            self._file = self._path.open("ab")
            self._file.truncate(kept)

    def write(self, line: Mapping[str, object]) -> None:
        """Add a line.

        Raises:
            TrainingError: it can't be written.
        """
        with self._changing():
            self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self._file.flush()

    def sync(self) -> None:
        """Have on the disk what was recorded; called before a state is saved, so that no resume lacks a line.

        Raises:
            TrainingError: it can't be written.
        """
        with self._changing():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # of a line that could not be written, which was said then
            self._file.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TrainingError(
                f"a run must be able to write its lines: {error.strerror}",
                file=self._path,
                remedy="Make room there, and go on from the last saved state with --resume auto.",
            ) from error


class MetricsFile(LinesFile):
    """``metrics.jsonl``: a line a step. A number that is not finite is null, since JSON has no word for it."""

    def record(self, record: Record) -> None:
        self.write({name: value if math.isfinite(value) else None for name, value in record.items()})


class SamplesFile(LinesFile):
    """``samples.jsonl``: a line a prompt and evaluation."""

    def sample(self, step: int, prompt: str, text: str) -> None:
        self.write({"step": step, "prompt": prompt, "text": text})


class NoMetrics(Quiet):
    """In the place of a `MetricsFile`, where another process writes it."""

    def sync(self) -> None:
        """Nothing."""


def kept_bytes(path: Path, step: int) -> int:
    """How many bytes of a metrics file belong to steps up to ``step``."""
    if step == 0 or not path.is_file():
        return 0
    kept = 0
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            found = json.loads(line)["step"] if line.endswith(b"\n") else None
        except (ValueError, KeyError, TypeError):
            found = None
        if not isinstance(found, int) or found > step:
            break
        kept += len(line)
    return kept


def read_metrics(run: Path) -> list[dict[str, float | int | None]]:
    """The lines of a run's ``metrics.jsonl``; a last line that was cut off by a kill is left out.

    Raises:
        DataError: no such file, or a line that is not JSON.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise DataError("no such file", file=path, remedy="Give a run directory.")
    lines = path.read_bytes().splitlines(keepends=True)
    try:
        return [json.loads(line) for line in lines if line.endswith(b"\n")]
    except ValueError as error:
        raise DataError(f"not a file of JSON lines: {error}", file=path) from error


def tag_of(name: str) -> str:
    """A measure's name where measures stand in folders: ``train/loss``, ``valid/loss``."""
    return f"valid/{name.removeprefix('valid_')}" if name.startswith("valid_") else f"train/{name}"


class TensorBoard(Quiet):
    """Event files for TensorBoard: each measure as a scalar ``train/…`` or ``valid/…`` over steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, run: Run) -> None:
        """Open a file; of earlier files, what lies after the step to go on from is hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer: SummaryWriter = SummaryWriter(str(self._folder), purge_step=run.first + 1)
        if not run.first:
            self._writer.add_text("recipe", f"```yaml\n{run.recipe}\n```", 0)

    def record(self, record: Record) -> None:
        for name, value in record.items():
            if name != "step":
                self._writer.add_scalar(tag_of(name), value, int(record["step"]))

    def sample(self, step: int, prompt: str, text: str) -> None:
        self._writer.add_text(f"samples/{prompt}", text, step)

    def close(self) -> None:
        self._writer.close()
