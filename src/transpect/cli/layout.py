"""Text in columns for a terminal, where a Chinese character is two columns wide. No imports that take time."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence

__all__ = ["page_width", "rows", "width_of", "wrap"]

_NOT_FIRST = frozenset("，。、；：！？）》」』”’…,.;:!?)]}%")
_NOT_LAST = frozenset("（《「『“‘([{")


def page_width() -> int:
    """Columns to write in: ``$COLUMNS``, else the terminal's, else 80; never fewer than 40 or more than 120."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        columns = 80
    return min(max(columns, 40), 120)


def width_of(text: str) -> int:
    """Columns that ``text`` takes: 2 for a wide character, 0 for a combining one, 1 for any other."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` columns, broken at spaces and between Chinese characters.

    A piece that is wider than that stands on a line of its own.
    """
    lines, line = [], ""
    for piece in _pieces(text):
        if line and width_of(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return [*lines, line.rstrip()]


def rows(pairs: Sequence[tuple[str, str]], width: int, *, indent: int = 2, gap: int = 2, left_limit: int = 30) -> str:
    """A line for each (name, explanation), the explanations aligned and wrapped within ``width`` columns.

    A name wider than ``left_limit`` has its explanation begin on the next line.
    """
    fitting = [w for name, _ in pairs if (w := width_of(name)) <= left_limit]
    left = max(fitting, default=left_limit)
    start = " " * (indent + left + gap)
    lines: list[str] = []
    for name, explanation in pairs:
        head = " " * indent + name
        space = " " * (left + gap - width_of(name)) if width_of(name) <= left else f"\n{start}"
        body = f"\n{start}".join(wrap(explanation, max(width - len(start), 20)))
        lines.append(f"{head}{space}{body}".rstrip())
    return "\n".join(lines)


def _pieces(text: str) -> Iterator[str]:
    """What may not be broken: words with the space behind them, single wide characters with their punctuation."""
    piece = ""
    for char in text:
        if piece and _breaks(piece[-1], char):
            yield piece
            piece = ""
        piece += char
    yield piece


def _breaks(before: str, after: str) -> bool:
    if after == " ":
        return False
    if before == " ":
        return True
    wide = unicodedata.east_asian_width(before) in "WF" or unicodedata.east_asian_width(after) in "WF"
    return wide and after not in _NOT_FIRST and before not in _NOT_LAST
