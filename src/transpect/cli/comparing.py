"""How a comparison looks while it runs: bars on a terminal, a line a finished training elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from transpect.base.i18n import tr
from transpect.compare import Result, Task

__all__ = ["Shown"]


class Shown:
    """A watcher for `transpect.compare.compare`.

    Args:
        console: where to.
        due: the trainings that are to be made.
        jobs: how many run at once.
        clock: seconds from some moment on.
    """

    def __init__(
        self, console: Console, due: Sequence[Task], jobs: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._console, self._clock, self._total = console, clock, len(due)
        self._left = sum(task.recipe.train.max_steps for task in due)
        self._steps: dict[str, int] = {}
        self._done = self._made = 0
        self._begun = clock()
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Shown:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, task: Task) -> None:
        """A training begins, or goes on."""
        self._bars[task.name] = self._progress.add_task(task.name, total=task.recipe.train.max_steps)

    def advance(self, task: Task, step: int) -> None:
        """It has made ``step`` updates."""
        before = self._steps.get(task.name)
        if before is None:  # a run that goes on made the others before
            self._left -= step - 1
            before = step - 1
        self._steps[task.name] = step
        self._made += step - before
        self._progress.update(self._bars[task.name], completed=step)

    def end(self, task: Task, results: list[Result] | None) -> None:
        """It is over."""
        if task.name in self._bars:
            self._progress.remove_task(self._bars.pop(task.name))
        if results is None:
            return
        self._done += 1
        for result in results:
            name = f"{result.variant}, seed {result.seed}"
            if result.error is not None:
                self._say(tr("cli.compare.failed", number=self._done, total=self._total, name=name, error=result.error))
                continue
            losses = "  ".join(f"{n}× {one.loss:.3f}" for n, one in result.lengths.items()) or "—"
            self._say(
                tr(
                    "cli.compare.line",
                    number=self._done,
                    total=self._total,
                    name=name,
                    losses=losses,
                    left=self._time_left(),
                )
            )

    def _time_left(self) -> str:
        """By the rate so far, evaluations included."""
        if not self._made:
            return "?"
        seconds = (self._clock() - self._begun) / self._made * (self._left - self._made)
        return str(timedelta(seconds=max(0, round(seconds))))

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
