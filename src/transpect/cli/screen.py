"""Tables on a terminal, and the same in full width where a program reads them."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

__all__ = ["console", "table"]


def console() -> Console:
    """Writes to stdout: in the terminal's width, or in columns that nothing wraps where there is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 240, highlight=False, soft_wrap=False)


def table(*columns: str, title: str = "", numbers: tuple[int, ...] = ()) -> Table:
    """An empty table without a frame; the columns in ``numbers`` are aligned to the right."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, heading in enumerate(columns):
        made.add_column(heading, justify="right" if index in numbers else "left", header_style="bold", overflow="fold")
    return made
