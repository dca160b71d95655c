"""What is done to each number of a row by itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number, activate_all
from transpect.runtime.products import quantise, restore

Array = Any


@kernel(by_rows=True)
def look_up(table: Any, factor: Number, x: Array, rows: Any, part: int, parts: int) -> None:
    """x ← factor · the row of the table [V, D] for each token."""
    for r in range(part, rows.n, parts):
        restore(table, rows.token[r], factor, x[r])


@kernel(by_rows=True)
def add_position(table: Array, x: Array, rows: Any, part: int, parts: int) -> None:
    """x ← x + the row of the table [S, D] for each token's position."""
    for r in range(part, rows.n, parts):
        own = table[rows.position[r]]
        for i in range(len(own)):
            x[r, i] += own[i]


@kernel(by_rows=True)
def activated(kind: int, width: int, x: Array, rows: Any, part: int, parts: int) -> None:
    """x ← act(x), [R, N]."""
    for r in range(part, rows.n, parts):
        activate_all(kind, x[r, :width])


@kernel(by_rows=True)
def gate(kind: int, width: int, x: Array, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← act(out) ⊙ x, [R, N]."""
    for r in range(part, rows.n, parts):
        activate_all(kind, out[r, :width])
        for i in range(width):
            out[r, i] *= x[r, i]


@kernel(by_rows=True)
def to_integers(x: Array, width: int, to: Any, rows: Any, part: int, parts: int) -> None:
    """Rows of x [R, D] to what the product with weights in a format reads."""
    for r in range(part, rows.n, parts):
        quantise(x, width, r, r + 1, to)


@kernel(by_rows=True)
def add(x: Array, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← out + x."""
    for r in range(part, rows.n, parts):
        for i in range(x.shape[1]):
            out[r, i] += x[r, i]


@kernel(by_rows=True)
def clamp(limit: Number, width: int, x: Array, rows: Any, part: int, parts: int) -> None:
    """x ← x held within ±limit."""
    for r in range(part, rows.n, parts):
        for i in range(width):
            x[r, i] = np.float32(min(max(x[r, i], -limit), limit))
