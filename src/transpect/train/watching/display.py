"""How a run looks on a terminal: a bar with the numbers that matter, or plain lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.syntax import Syntax

from transpect.train.watching.logger import Logger, Quiet, Record, Run

SAID = ("step", "epoch", "loss", "lr", "grad_norm", "tokens", "tokens_per_s", "seconds")
"""What every line says in a form of its own, or not at all."""
FORMS = {"valid_perplexity": "perplexity {:.2f}", "valid_bits_per_character": "{:.4f} bits/character"}


def display(style: Literal["auto", "bar", "lines", "none"], console: Console) -> Logger:
    """The display of a style; ``auto`` is a bar on a terminal and lines elsewhere."""
    if style == "none":
        return Quiet()
    if style == "bar" or (style == "auto" and console.is_terminal):
        return Bar(console)
    return Lines(console)


class Lines(Quiet):
    """A plain line for each record.

    Args:
        console: where to.
        clock: seconds from some moment on.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = monotonic) -> None:
        self._console, self._clock = console, clock
        self._first = self._last = 0
        self._begun = 0.0

    def start(self, run: Run) -> None:
        self._first, self._last, self._begun = run.first, run.last, self._clock()
        announce(self._console, run, plain=True)

    def record(self, record: Record) -> None:
        step = int(record["step"])
        # with evaluations and savings so far: they will come again
        left = (self._clock() - self._begun) / (step - self._first) * (self._last - step)
        self.note(f"step {step}/{self._last}  {numbers(record)}  {timedelta(seconds=round(left))} left")

    def sample(self, step: int, prompt: str, text: str) -> None:
        self.note(shown_sample(prompt, text))

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar(Quiet):
    """A progress bar with loss, learning rate, gradient norm, tokens per second and the time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self._numbers = self._valid = ""

    def start(self, run: Run) -> None:
        announce(self._console, run, plain=False)
        self._task = self._progress.add_task("", total=run.last, completed=run.first, numbers="")
        self._progress.start()

    def advance(self, step: int) -> None:
        self._progress.update(self._task, completed=step)

    def record(self, record: Record) -> None:
        if "valid_loss" in record:
            self._valid = f"  valid {record['valid_loss']:.4f}"
            self.note(f"step {record['step']}  {numbers(record)}")
        trained = {name: value for name, value in record.items() if not name.startswith("valid_")}
        self._progress.update(self._task, completed=int(record["step"]), numbers=f"{numbers(trained)}{self._valid}")

    def sample(self, step: int, prompt: str, text: str) -> None:
        self.note(shown_sample(prompt, text))

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


def announce(console: Console, run: Run, *, plain: bool) -> None:
    """Print the resolved recipe, and what is about to run."""
    if plain:
        console.print(run.recipe, markup=False, highlight=False, soft_wrap=True)
    else:
        console.print(Syntax(run.recipe, "yaml", background_color="default", word_wrap=True))
    where = f", going on from step {run.first}" if run.first else ""
    text = f"{run.n_parameters:,} parameters on {run.device}, {run.last} steps{where}, into {run.out}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def shown_sample(prompt: str, text: str) -> str:
    """A prompt and what was written after it, on a line."""
    return f"  {prompt!r} → {text!r}"


def numbers(record: Record) -> str:
    """The measures of a record in a line."""
    text = (
        f"loss {record['loss']:.4f}  lr {record['lr']:.2e}  grad norm {record['grad_norm']:.3f}"
        f"  {record['tokens_per_s']:,.0f} tokens/s"
    )
    for name, value in record.items():
        if name not in SAID:
            words = name.replace("_", " ")
            text += f"  {FORMS.get(name, f'{words} {{:.4f}}').format(value)}"
    return text
