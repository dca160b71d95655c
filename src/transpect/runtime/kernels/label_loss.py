"""Cross-entropy of training, in float32: a loss and its gradient by the logits, each row while it lies in the cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number
from transpect.runtime.products.attending import largest_of, shares_of
from transpect.runtime.products.kernel import address

Array = Any
ONE = np.float32(1.0)


@kernel()
def label_loss(
    logits: Array, labels: Array, smoothing: Number, slope: Array, loss: Array, rows: Any, part: int, parts: int
) -> None:
    """loss ← (1 − ε)·(−log p(label)) + ε/V·Σ_v (−log p(v)); slope ← its gradient: [n, V], [n] -> [n, V], [n].

    The slope may take the logits' place. The largest p is at least 1/V, so its logarithm is safe where that of a
    label's is not: ln Σ e^x is the largest x less the logarithm of its p.
    """
    n, v = logits.shape
    largest = np.empty(1, np.float32)
    rest = smoothing / np.float32(v)
    for r in range(n * part // parts, n * (part + 1) // parts):
        x, own, label = logits[r], slope[r], labels[r]
        largest_of((address(logits, r), v, address(largest, 0)))
        loss[r] = largest[0] - (ONE - smoothing) * x[label]
        if smoothing > 0:
            total = np.float32(0.0)
            for i in range(v):
                total += x[i]
            loss[r] -= rest * total
        if address(logits, r) != address(slope, r):
            for i in range(v):
                own[i] = x[i]
        shares_of((address(slope, r), v))
        largest_of((address(slope, r), v, address(largest, 0)))
        loss[r] -= np.float32(math.log(largest[0]))
        own[label] -= ONE - smoothing
        if smoothing > 0:
            for i in range(v):
                own[i] -= rest
