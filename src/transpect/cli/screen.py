"""Tables on a terminal, and the same in full width where a program reads them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["console", "progress", "table"]


def console() -> Console:
    """Writes to stdout: in the terminal's width, or in columns that nothing wraps where there is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 240, highlight=False, soft_wrap=False)


def table(*columns: str, title: str = "", numbers: tuple[int, ...] = ()) -> Table:
    """An empty table without a frame; the columns in ``numbers`` are aligned to the right."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, heading in enumerate(columns):
        made.add_column(heading, justify="right" if index in numbers else "left", header_style="bold", overflow="fold")
    return made


@contextmanager
def progress(what: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal; give what it yields how many more are done."""
    shown = Console(stderr=True)
    with Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=shown,
        disable=not shown.is_terminal,
    ) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield lambda count: bar.advance(task, count)
