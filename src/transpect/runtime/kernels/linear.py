"""Products of rows with weights, the work of a decode step: each thread has a share of the outputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number, activate_all
from transpect.runtime.products import pair

Array = Any
SCRATCH = 64
"""Room for the sums of one call of `pair`."""
ROWS = 8
"""How many rows are computed at a time, where there are more than four."""


@compiled
def _begin(bias: Array, more: bool, out: Array, row: int, i: int) -> Number:
    begin = bias[i] if len(bias) else np.float32(0.0)
    return begin + out[row, i] if more else begin


@compiled
def _block(rows: int) -> int:
    """How many rows are computed at a time, where so many are left."""
    if rows == 1:
        return 1
    return ROWS if rows > ROWS // 2 else ROWS // 2


@compiled
def _share(weight: Any, n: int, bias: Array, x: Any, rows: int, more: bool, part: int, parts: int, out: Array) -> None:
    """One thread's share of `linear`."""
    first, last = part * n // parts, (part + 1) * n // parts
    # rows that are read at one time are far apart: within a page memory would see one stream, and lose it
    half = (last - first + 1) // 2
    dots = np.empty(SCRATCH, np.float32)
    if rows == 1:  # without the loops below, which cost as much as they do
        for i in range(first, first + half):
            j = min(i + half, last - 1)
            pair(weight, i, weight, j, x, 0, 1, dots)
            second = _begin(bias, more, out, 0, j) + dots[1]
            out[0, i] = _begin(bias, more, out, 0, i) + dots[0]
            if i + half < last:
                out[0, j] = second
        return
    for i in range(first, first + half):
        j = min(i + half, last - 1)
        for start in range(0, rows, ROWS):
            block = _block(rows - start)
            pair(weight, i, weight, j, x, start, block, dots)
            for r in range(min(block, rows - start)):
                out[start + r, i] = _begin(bias, more, out, start + r, i) + dots[r]
                if i + half < last:
                    out[start + r, j] = _begin(bias, more, out, start + r, j) + dots[block + r]


@kernel()
def linear(weight: Any, n: int, bias: Array, x: Any, more: bool, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← x·Wᵀ + bias, or out + that for ``more``: [R, D] -> [R, N = n]; an empty bias is none."""
    _share(weight, n, bias, x, rows.n, more, part, parts, out)


@kernel()
def project(query: Any, key: Any, value: Any, x: Any, rows: Any, part: int, parts: int) -> None:
    """Three of `linear` of the same x, each (weight, N, bias, out): threads wait for each other once."""
    _share(query[0], query[1], query[2], x, rows.n, False, part, parts, query[3])
    _share(key[0], key[1], key[2], x, rows.n, False, part, parts, key[3])
    _share(value[0], value[1], value[2], x, rows.n, False, part, parts, value[3])


@kernel()
def gated(
    gate: Any,
    gate_bias: Array,
    up: Any,
    up_bias: Array,
    n: int,
    kind: int,
    x: Any,
    linear_part: Array,
    out: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """out ← act(x·Gᵀ + g) ⊙ (x·Uᵀ + u): [R, D] -> [R, N]; ``linear_part`` [R, N] is to work in."""
    count, first, last = rows.n, part * n // parts, (part + 1) * n // parts
    dots = np.empty(SCRATCH, np.float32)
    for i in range(first, last):
        a = gate_bias[i] if len(gate_bias) else np.float32(0.0)
        b = up_bias[i] if len(up_bias) else np.float32(0.0)
        for start in range(0, count, ROWS):
            block = _block(count - start)
            pair(gate, i, up, i, x, start, block, dots)
            for r in range(min(block, count - start)):
                out[start + r, i] = a + dots[r]
                linear_part[start + r, i] = b + dots[block + r]
    for r in range(count):
        own, other = out[r, first:last], linear_part[r, first:last]
        activate_all(kind, own)
        for i in range(last - first):
            own[i] *= other[i]


@kernel()
def finish(factor: Number, bias: Array, cap: Number, n: int, logits: Array, rows: Any, part: int, parts: int) -> None:
    """logits ← c·tanh((factor·logits + bias) / c); c = 0 is no cap, an empty bias is none."""
    for r in range(rows.n):
        for i in range(part * n // parts, (part + 1) * n // parts):
            x = factor * logits[r, i] + (bias[i] if len(bias) else np.float32(0.0))
            logits[r, i] = cap * np.float32(math.tanh(x / cap)) if cap > 0 else x
