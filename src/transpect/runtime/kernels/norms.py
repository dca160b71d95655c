"""Normalisation of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.machine import kernel

Array = Any


@kernel(by_rows=True)
def rms_norm(weight: Array, eps: float, times: int, x: Array, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← x / √(mean(x²) + eps) · weight, for each of a row's ``times`` parts."""
    n = len(weight)
    for r in range(part, rows.n, parts):
        for start in range(0, times * n, n):
            own, result = x[r, start : start + n], out[r, start : start + n]
            squares = np.float32(0.0)
            for i in range(n):
                squares += own[i] * own[i]
            factor = np.float32(1.0 / math.sqrt(squares / n + eps))
            for i in range(n):
                result[i] = own[i] * factor * weight[i]


@kernel(by_rows=True)
def layer_norm(
    weight: Array, bias: Array, eps: float, times: int, x: Array, out: Array, rows: Any, part: int, parts: int
) -> None:
    """out ← (x − mean) / √(var + eps) · weight + bias, for each of a row's ``times`` parts."""
    n = len(weight)
    for r in range(part, rows.n, parts):
        for start in range(0, times * n, n):
            own, result = x[r, start : start + n], out[r, start : start + n]
            total, squares = np.float32(0.0), np.float32(0.0)
            for i in range(n):
                total += own[i]
            mean = np.float32(total / n)
            for i in range(n):
                squares += (own[i] - mean) * (own[i] - mean)
            factor = np.float32(1.0 / math.sqrt(squares / n + eps))
            for i in range(n):
                result[i] = (own[i] - mean) * factor * weight[i] + bias[i]
