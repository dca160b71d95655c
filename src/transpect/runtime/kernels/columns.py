"""Sums over rows: a bias's gradient."""

from __future__ import annotations

from typing import Any

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel

Array = Any
WIDE = 1024
"""Columns whose sums lie in the nearest cache."""


@kernel()
def add_columns(x: Array, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← out + Σ over rows of x: [N, F], [F] -> [F]."""
    first, last = x.shape[1] * part // parts, x.shape[1] * (part + 1) // parts
    for c in range(first, last, WIDE):
        own = out[c : min(c + WIDE, last)]
        for r in range(len(x)):
            _add(x[r, c : min(c + WIDE, last)], own)


@compiled
def _add(x: Array, out: Array) -> None:
    for i in range(len(out)):
        out[i] += x[i]
