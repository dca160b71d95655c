"""What softmax divides by, of rows as long as a vocabulary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.products.kernel import address
from transpect.runtime.products.softmax import total_of

Array = Any
_PIECE = 1024
"""Numbers that are summed in float32, before they are added to what has 64 bits."""
_LARGEST = np.float32(np.finfo(np.float32).max)


def log_totals(logits: Array, most: Array | None = None) -> Array:
    """ln Σ exp of each row: float32 [B, V] -> [B]. A row gets the same whatever the others are; one that holds NaN or
    +inf, or nothing but −inf, gets NaN.

    Args:
        logits: of the rows.
        most: the largest of each row, or NaN where there is one; None: it is looked for.
    """
    totals = logits.max(-1) if most is None else most.copy()
    _sum(logits if logits.flags.c_contiguous else np.ascontiguousarray(logits), totals)
    return totals


@compiled
def _sum(logits: Array, most: Array) -> None:
    """most ← ln Σ exp; it is each row's largest number before."""
    part = np.empty(1, np.float32)
    for row in range(len(logits)):
        whole = np.float64(0.0)
        for first in range(0, logits.shape[1], _PIECE):
            count = min(_PIECE, logits.shape[1] - first)
            total_of((address(logits, row) + 4 * first, count, address(most, row), address(part, 0)))
            whole += part[0]
        known = abs(most[row]) <= _LARGEST  # neither infinite nor NaN
        most[row] = np.float32(np.float64(most[row]) + math.log(whole)) if known else np.float32(np.nan)
