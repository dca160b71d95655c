"""Rows of several processes side by side, where a loss compares the rows of a batch with each other.

Axes: B rows of a micro-batch, b rows of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def sharers(accumulate: int, readers: Tensor) -> dist.ProcessGroup | None:
    """Of the processes that share out a micro-batch (see `transpect.train.parallel.shares`), those of this one; None
    where each reads whole micro-batches. Every process must call it.

    Args:
        accumulate: A.
        readers: [n, W], see `Grid.readers`.
    """
    size = readers.shape[1]
    together = size // gcd(accumulate, size)
    if together == 1:
        return None
    subgroups: Any = dist.new_subgroups_by_enumeration
    own: dist.ProcessGroup = subgroups(readers.reshape(-1, together).tolist())[0]
    return own


def side_by_side(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The rows of each process of a group, in their order: [b, …] -> [B, …]; b may differ."""
    apply: Callable[..., Tensor] = _SideBySide.apply
    return apply(rows, group)


class _SideBySide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        counts = torch.zeros(group.size(), dtype=torch.int64, device=rows.device)
        counts[group.rank()] = len(rows)
        dist.all_reduce(counts, group=group)
        ctx.sizes, ctx.group = counts.tolist(), group
        padded = rows.new_zeros(max(ctx.sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in ctx.sizes]
        dist.all_gather(gathered, padded, group=group)
        return torch.cat([some[:size] for some, size in zip(gathered, ctx.sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor, None]:
        total = by.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return torch.split(total, ctx.sizes)[ctx.group.rank()], None
