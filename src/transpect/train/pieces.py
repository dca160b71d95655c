"""Some rows of a micro-batch at a time, on a CPU: the same gradient, and activations of fewer tokens.

A loss that is a sum over rows has a gradient that is one too, so a micro-batch may be read piece by piece; only what a
piece needs for its backward pass lives then. Each piece costs reading and writing all gradients once more, some
8·P bytes beside 6·P operations a token for P weights: with `AT_ONCE` tokens, by this count one hundredth of the time.
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
BESIDE = 512
"""The same where readers have pieces side by side (`transpect.train.readers`): of each fewer tokens live, since there
are several at a time and a second gradient beside them."""


def rows_at_once(rows: int, tokens: int, readers: int = 1) -> int:
    """How many rows of a micro-batch are read at a time.

    Args:
        rows: that it has.
        tokens: of a row, the source's included.
        readers: see `beside`.
    """
    at_once = BESIDE if beside(tokens, readers) else AT_ONCE
    pieces = max(1, min(rows, -(-rows * tokens // at_once)))
    return -(-rows // pieces)


def beside(tokens: int, readers: int) -> bool:
    """Whether so many readers have pieces side by side: rows are so short that one for each is no more than a piece."""
    return readers > 1 and readers * tokens <= AT_ONCE


def can_be_cut(batches: Iterable[Batch], criterion: Criterion, device: torch.device, world: World) -> bool:
    """Whether micro-batches may be read piece by piece.

    They stay whole on other devices, which are busy with many rows alone; where processes compute together, which talk
    at every pass; where rows go on from batch to batch; and where a criterion looks at rows beside each other.
    """
    by_rows = device.type == "cpu" and world.size == 1 and criterion.by_rows
    return by_rows and all(batch.stretch is None for batch in batches)


def pieces(batches: Iterable[Batch], criterion: Criterion, readers: int = 1) -> Iterator[Batch]:
    """Pieces of micro-batches that have something to count, for so many readers."""
    for batch in batches:
        count, size = len(batch.ids), rows_at_once(len(batch.ids), tokens_of(batch), readers)
        for start in range(0, count, size):
            piece = rows_of(batch, slice(start, start + size)) if size < count else batch
            if any(criterion.counts(piece)):
                yield piece


def tokens_of(batch: Batch) -> int:
    """Of a row, the source's included."""
    return batch.ids.shape[1] + (0 if batch.source_ids is None else batch.source_ids.shape[1])
