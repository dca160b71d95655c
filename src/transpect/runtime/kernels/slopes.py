"""Activations of training, in float32: a value, or a value with its slope, in one pass over the numbers.

u·σ(v) in both: GELU is u/2 · (1 + tanh(√(2/π)·(u + 0.044715·u³))), so v is twice what tanh is of (Hendrycks & Gimpel
2016, §2); SiLU has v = u (Elfwing et al. 2017), and SwiGLU is its product with a second number (Shazeer 2020).
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np

from transpect.runtime.machine import kernel
from transpect.runtime.numeric import exponential, quotient

Array = Any
ONE = np.float32(1.0)
LINEAR = np.float32(2 * sqrt(2 / pi))
CUBIC = np.float32(2 * sqrt(2 / pi) * 0.044715)
STEEP = np.float32(6 * sqrt(2 / pi) * 0.044715)


@kernel()
def gelu(u: Array, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← gelu(u), of arrays [N]."""
    share = slice(len(u) * part // parts, len(u) * (part + 1) // parts)
    u, out = u[share], out[share]
    for i in range(len(u)):
        x = u[i]
        out[i] = x * quotient(ONE, ONE + exponential(-x * (LINEAR + CUBIC * x * x)))


@kernel()
def pull_gelu(u: Array, by: Array, slope: Array, rows: Any, part: int, parts: int) -> None:
    """slope ← by · gelu'(u); by ← gelu(u), of arrays [N]."""
    share = slice(len(u) * part // parts, len(u) * (part + 1) // parts)
    u, by, slope = u[share], by[share], slope[share]
    for i in range(len(u)):
        x = u[i]
        square = x * x
        gate = quotient(ONE, ONE + exponential(-x * (LINEAR + CUBIC * square)))
        value = x * gate
        slope[i] = by[i] * (gate + value * (ONE - gate) * (LINEAR + STEEP * square))
        by[i] = value


@kernel()
def swiglu(u: Array, w: Array, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← silu(u) · w, of arrays [N]."""
    share = slice(len(u) * part // parts, len(u) * (part + 1) // parts)
    u, w, out = u[share], w[share], out[share]
    for i in range(len(u)):
        out[i] = u[i] * quotient(ONE, ONE + exponential(-u[i])) * w[i]


@kernel()
def pull_swiglu(u: Array, w: Array, by: Array, of_u: Array, of_w: Array, rows: Any, part: int, parts: int) -> None:
    """of_u ← by · w · silu'(u); of_w ← by · silu(u); by ← silu(u) · w, of arrays [N]."""
    share = slice(len(u) * part // parts, len(u) * (part + 1) // parts)
    u, w, by, of_u, of_w = u[share], w[share], by[share], of_u[share], of_w[share]
    for i in range(len(u)):
        gate = quotient(ONE, ONE + exponential(-u[i]))
        value = u[i] * gate
        of_u[i] = by[i] * w[i] * (gate + value * (ONE - gate))
        of_w[i] = by[i] * value
        by[i] = value * w[i]
