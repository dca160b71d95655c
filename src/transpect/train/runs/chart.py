"""Curves in a terminal: a line of blocks, and a field of Braille dots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
Curve = Sequence[tuple[float, float]]

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Of a Braille cell, by column and row, counted from the top (Unicode, Braille Patterns)."""


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Values as blocks, the least as the lowest; of more than ``width``, means of equal stretches."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    if len(finite) > width:
        ends = [round(len(finite) * i / width) for i in range(width + 1)]
        finite = [sum(finite[a:b]) / (b - a) for a, b in pairwise(ends)]
    low, high = min(finite), max(finite)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * scale)] for value in finite)


@dataclass(frozen=True)
class Chart:
    """A drawn field.

    Attributes:
        rows: from the top; of each cell (character, which curve), None where nothing is.
        low, high: values at the bottom and at the top.
        first, last: steps at the left and at the right.
    """

    rows: list[list[tuple[str, int | None]]]
    low: float
    high: float
    first: float
    last: float


def chart(curves: Sequence[Curve], width: int = 64, height: int = 12) -> Chart | None:
    """Curves over one another, joined by straight lines; where two meet in a cell, it has the colour of the later.

    Args:
        curves: of (step, value), by step; values that are not finite are left out.
        width, height: in cells of 2 × 4 dots.

    Returns:
        None where there is nothing to draw.
    """
    kept = [[(x, y) for x, y in curve if math.isfinite(y)] for curve in curves]
    points = [point for curve in kept for point in curve]
    if not points:
        return None
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    across, down = 2 * width - 1, 4 * height - 1

    def column(x: float) -> float:
        return (x - first) / (last - first) * across if last > first else 0.0

    def row(y: float) -> float:
        return (high - y) / (high - low) * down if high > low else down / 2

    cells: dict[tuple[int, int], tuple[int, int]] = {}
    for number, curve in enumerate(kept):
        for (x0, y0), (x1, y1) in zip(curve, curve[1:] or curve, strict=False):
            steps = max(1, math.ceil(max(abs(column(x1) - column(x0)), abs(row(y1) - row(y0)))))
            for i in range(steps + 1):
                c = round(column(x0) + (column(x1) - column(x0)) * i / steps)
                r = round(row(y0) + (row(y1) - row(y0)) * i / steps)
                place = (r // 4, c // 2)
                dots = cells[place][0] if place in cells else 0
                cells[place] = (dots | _DOTS[c % 2][r % 4], number)
    rows: list[list[tuple[str, int | None]]] = [
        [(chr(0x2800 + cells[r, c][0]), cells[r, c][1]) if (r, c) in cells else (" ", None) for c in range(width)]
        for r in range(height)
    ]
    return Chart(rows, low, high, first, last)
