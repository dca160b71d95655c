"""Products of rows with weights, the work of a decode step: each thread has a share of the outputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number, activate_all
from transpect.runtime.products import border, share

Array = Any


@kernel()
def linear(weight: Any, n: int, bias: Array, x: Any, more: bool, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← x·Wᵀ + bias, or out + that for ``more``: [R, D] -> [R, N = n]; an empty bias is none."""
    share(weight, border(n, part, parts), border(n, part + 1, parts), bias, x, rows.n, more, out)


@kernel()
def project(query: Any, key: Any, value: Any, x: Any, rows: Any, part: int, parts: int) -> None:
    """Three of `linear` of the same x, each (weight, N, bias, out): threads wait for each other once."""
    _of_three(query, x, rows.n, part, parts)
    _of_three(key, x, rows.n, part, parts)
    _of_three(value, x, rows.n, part, parts)


@compiled
def _of_three(own: Any, x: Any, rows: int, part: int, parts: int) -> None:
    share(own[0], border(own[1], part, parts), border(own[1], part + 1, parts), own[2], x, rows, False, own[3])


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
    first, last = border(n, part, parts), border(n, part + 1, parts)
    share(gate, first, last, gate_bias, x, rows.n, False, out)
    share(up, first, last, up_bias, x, rows.n, False, linear_part)
    for r in range(rows.n):
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
