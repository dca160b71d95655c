"""How long an update takes, as the sum of what it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transpect.train.planning.hardware import Device
from transpect.train.planning.parts import WIDE, Part, Work

TOUCHED = 9
"""Tensors of the size of all weights that clipping and AdamW read or write: g; w, g, m, v and w, m, v; and g again."""


@dataclass(frozen=True)
class Time:
    """Seconds of one update.

    Attributes:
        products: matrix products with weights.
        attention: scores and weighted sums.
        pointwise: what only moves numbers.
        starting: starting operations one by one.
        optimizer: clipping and the update of weights.
        talking: waiting for other devices.
        idle: the bubble of a pipeline.
    """

    products: float
    attention: float
    pointwise: float
    starting: float
    optimizer: float
    talking: float = 0.0
    idle: float = 0.0

    @property
    def update(self) -> float:
        """All of it."""
        computing = self.products + self.attention + self.pointwise + self.starting
        return computing + self.optimizer + self.talking + self.idle


def time_of(parts: Sequence[Part], work: Work, device: Device, accumulate: int = 1, share: float = 1.0) -> Time:
    """One update without others: forward, and twice as much backward, of each micro-batch; then the optimizer.

    Args:
        parts: of the model, for one micro-batch.
        work: of it.
        device: which says how long each piece takes.
        accumulate: micro-batches.
        share: of the weights that the device updates.
    """
    again = 1 if work.checkpointed else 0
    passes = (3 + again) * accumulate
    weights = sum(part.parameters for part in parts) * WIDE
    width = max((product.k for part in parts[1:-1] for product in part.products), default=1)
    unit = max(1, work.rows * work.length * width * WIDE)
    products = sum(device.product(one, work.precision) for part in parts for one in part.products)
    attention = sum(device.scores(part.scores, work.precision) for part in parts if part.scores is not None)
    # a backward pass of norms and activations reads and writes about twice as much, and computes some again
    moving = sum(part.moved for part in parts)
    added = device.moving(3 * weights * (accumulate - 1), min(weights, 64 << 20)) if accumulate > 1 else 0.0
    return Time(
        products=products * passes,
        attention=attention * accumulate * (1 + again / 3),
        pointwise=device.moving(moving, unit) * passes + added,
        starting=device.calls(sum(part.calls for part in parts)) * passes,
        optimizer=device.moving(int(TOUCHED * weights * share), min(max(1, weights), 64 << 20)),
    )


def training_flops(parts: Sequence[Part], *, recomputed: bool = False) -> int:
    """Multiplications and additions of forward and backward pass, the backward being twice the forward: model FLOPs
    (Chowdhery et al. 2022, "PaLM", appendix B); with ``recomputed`` the forward counts once more."""
    return sum(part.flops for part in parts) * (4 if recomputed else 3)
