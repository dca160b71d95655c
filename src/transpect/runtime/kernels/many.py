"""Products of many rows with weights: each thread has a share of the panels."""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.machine import kernel
from transpect.runtime.products.panels import multiply
from transpect.runtime.products.tiles import COLUMNS, ROWS

Array = Any


@kernel()
def linear_many(
    weight: Any, n: int, bias: Array, x: Any, more: bool, room: int, out: Array, rows: Any, part: int, parts: int
) -> None:
    """`linear` for many rows; ``room`` as in `multiply`."""
    panels = (n + COLUMNS - 1) // COLUMNS
    first, last = COLUMNS * (part * panels // parts), COLUMNS * ((part + 1) * panels // parts)
    for r in range((rows.n + ROWS - 1) // ROWS * ROWS):
        if not more:
            out[r, first:last] = np.float32(0.0)
        if len(bias):
            for i in range(first, min(n, last)):
                out[r, i] += bias[i]
    scratch = np.empty(room, np.float32)
    for i in range(first, min(n, last), COLUMNS):
        multiply(weight, i, min(COLUMNS, n - i), x, rows.n, scratch, out)
