"""Cross-entropy of training, in float32: a loss and its gradient by the logits, each row while it lies in the cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number
from transpect.runtime.products.attending import shares_of
from transpect.runtime.products.kernel import address

Array = Any
HALF = np.float32(0.5)


@kernel()
def label_loss(
    logits: Array, labels: Array, smoothing: Number, slope: Array, loss: Array, rows: Any, part: int, parts: int
) -> None:
    """loss ← (1 − ε)·(−log p(label)) + ε/V·Σ_v (−log p(v)); slope ← its gradient: [n, V], [n] -> [n, V], [n]."""
    n, v = logits.shape
    for r in range(n * part // parts, n * (part + 1) // parts):
        x, own, label = logits[r], slope[r], labels[r]
        for i in range(v):
            own[i] = x[i]
        shares_of((address(slope, r), v))
        likely = 0  # some p is at least 1/V, so its logarithm is safe where that of a label's is not
        while own[likely] * v < HALF and likely < v - 1:
            likely += 1
        rest = smoothing / np.float32(v)
        loss[r] = x[likely] - np.float32(math.log(own[likely])) - (np.float32(1.0) - smoothing) * x[label]
        own[label] -= np.float32(1.0) - smoothing
        if smoothing > 0:
            total = np.float32(0.0)
            for i in range(v):
                total += x[i]
                own[i] -= rest
            loss[r] -= rest * total
