"""Which rows a process reads. The rows of an update are those of one process, whatever the number of processes.

Axes: B batch.

An update has A micro-batches of B rows. Of W processes, g = gcd(A, W) groups take whole micro-batches in turn, and the
W/g processes of a group share out the rows of each. So 8 micro-batches are one for each of 8 processes, and 1
micro-batch of 32 rows is 4 rows for each. Of examples of several texts, each of which is a row, all go to one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from math import gcd
from typing import Any

import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.core.tags import Tags
from transpect.data.batch import Batch


def check_shares(accumulate: int, batch_size: int, size: int) -> None:
    """Refuse an update of which some process would have nothing to read.

    Raises:
        ConfigError: a micro-batch has fewer rows than processes share it out.
    """
    sharers = size // gcd(accumulate, size)
    if batch_size < sharers:
        raise ConfigError(
            f"the {sharers} processes that share out a micro-batch need at least a row each",
            value=f"batch_size {batch_size}, accumulate {accumulate}, {size} processes by rows",
            remedy=f"Raise train.batch_size, make train.accumulate a multiple of {size}, or start fewer processes.",
        )


def share(update: Sequence[Batch], rank: int, size: int) -> list[Batch]:
    """What process ``rank`` of ``size`` reads of an update."""
    groups = gcd(len(update), size)
    sharers = size // groups
    group, place = divmod(rank, sharers)
    return [_part(batch, place, sharers) for batch in update[group::groups]]


def deal(batches: Iterable[Batch], rank: int, size: int) -> Iterator[tuple[Batch, int]]:
    """Every ``size``-th batch; the last round is filled up with batches that don't count, so that all read as many."""
    for dealt in zip_longest(*[iter(batches)] * size):
        yield (dealt[0], 0) if dealt[rank] is None else (dealt[rank], 1)


def _part(batch: Batch, place: int, count: int) -> Batch:
    if count == 1:
        return batch
    examples = len(batch.labels)
    cuts = [examples * i // count for i in range(count + 1)]
    own = slice(cuts[place], cuts[place + 1])
    if examples == len(batch.ids):
        return rows_of(batch, own)
    texts = torch.arange(len(batch.ids)).view(-1, examples)[:, own]  # [K, B] -> [K, b]
    labelled = replace(batch, labels=batch.labels.repeat(len(texts)))
    return replace(rows_of(labelled, texts.flatten()), labels=batch.labels[own])


def rows_of(batch: Batch, rows: slice | Tensor) -> Batch:
    """Some rows of a batch, in all that it holds."""
    parts: dict[str, Any] = {field.name: _rows(getattr(batch, field.name), rows) for field in fields(batch)}
    return Batch(**parts)


def _rows(value: object, rows: slice | Tensor) -> object:
    if isinstance(value, Tensor):
        return value[rows]
    if isinstance(value, Tags):
        parts: dict[str, Any] = {field.name: _rows(getattr(value, field.name), rows) for field in fields(value)}
        return Tags(**parts)
    return value
