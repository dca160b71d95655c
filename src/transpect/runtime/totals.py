"""What softmax divides by, of rows as long as a vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.products.kernel import address
from transpect.runtime.products.softmax import total_of

Array = Any
_PIECE = 1024
"""Numbers that are summed in float32, before they are added to what has 64 bits."""


def log_totals(logits: Array) -> Array:
    """ln Σ exp of each row: float32 [B, V] -> [B]. A row gets the same whatever the others are; one that holds NaN or
    +inf, or nothing but −inf, gets NaN."""
    most = logits.max(-1)
    totals = np.empty(len(logits), np.float32)
    _sum(np.ascontiguousarray(logits), most, totals)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(most), most + np.log(totals), np.float32(np.nan))


@compiled
def _sum(logits: Array, most: Array, out: Array) -> None:
    part = np.empty(1, np.float32)
    for row in range(len(logits)):
        whole = np.float64(0.0)
        for first in range(0, logits.shape[1], _PIECE):
            count = min(_PIECE, logits.shape[1] - first)
            total_of((address(logits, row) + 4 * first, count, address(most, row), address(part, 0)))
            whole += part[0]
        out[row] = whole
