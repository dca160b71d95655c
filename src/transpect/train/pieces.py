"""Some rows of a micro-batch at a time, on a CPU: the same gradient, and activations of fewer tokens.

A loss that is a sum over rows has a gradient that is one too, so a micro-batch may be read piece by piece; only what a
piece needs for its backward pass lives then. Each piece costs reading and writing all gradients once more, some
12·P bytes beside 6·P operations a token for P weights: with `AT_ONCE` tokens, by this count one or two hundredths
of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from transpect.data.batch import Batch
from transpect.train.criteria import Criterion
from transpect.train.parallel.shares import rows_of
from transpect.train.parallel.world import World

AT_ONCE = 2048
"""Tokens of a piece, padding included; a row is never cut."""


def rows_at_once(rows: int, tokens: int) -> int:
    """How many rows of a micro-batch are read at a time.

    Args:
        rows: that it has.
        tokens: of a row, the source's included.
    """
    pieces = max(1, min(rows, -(-rows * tokens // AT_ONCE)))
    return -(-rows // pieces)


def pieces(batches: Iterable[Batch], criterion: Criterion, device: torch.device, world: World) -> Iterator[Batch]:
    """The micro-batches, or pieces of them that have something to count.

    They stay whole on other devices, which are busy with many rows alone; where processes compute together, which talk
    at every pass; where rows go on from batch to batch; and where a criterion looks at rows beside each other.
    """
    whole = device.type != "cpu" or world.size > 1 or not criterion.by_rows
    for batch in batches:
        if whole or batch.stretch is not None:
            yield batch
            continue
        count, length = batch.ids.shape
        size = rows_at_once(count, length + (0 if batch.source_ids is None else batch.source_ids.shape[1]))
        for start in range(0, count, size):
            piece = rows_of(batch, slice(start, start + size)) if size < count else batch
            if any(criterion.counts(piece)):
                yield piece
