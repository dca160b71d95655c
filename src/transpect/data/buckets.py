"""Rows of about one length side by side, so that batches hold little padding."""

from __future__ import annotations

import numpy as np

from transpect.data.draws import shuffled
from transpect.data.packing import Plan
from transpect.data.ragged import Ints


def in_buckets(order: Ints, lengths: Ints, size: int, generator: np.random.Generator) -> Ints:
    """An order in which items of about one length follow each other in runs of ``size``, the runs in random order.

    The shortest run, of the longest items, comes last, so that the others keep their size.

    Args:
        order: item numbers, in random order: items of equal length keep it.
        lengths: of each item of ``order``.
        size: of a run, a few times the batch size, since a batch may begin anywhere in one; 1 leaves the order alone.
        generator: of the order of the runs.
    """
    if size == 1:
        return order
    ordered = order[np.argsort(lengths, kind="stable")]
    whole = len(ordered) // size
    runs = ordered[: whole * size].reshape(whole, size)[shuffled(whole, generator)]
    return np.concatenate([runs.ravel(), ordered[whole * size :]])


def bucketed(plan: Plan, size: int, generator: np.random.Generator) -> Plan:
    """A plan, in random order, with rows of about one length in runs of ``size``."""
    lengths = np.add.reduceat(plan.pieces[:, 2], plan.rows[:-1]) if len(plan) else np.empty(0, np.int64)
    return plan.reordered(in_buckets(np.arange(len(plan)), lengths, size, generator))
