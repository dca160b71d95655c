"""Relative positions in logarithmic buckets, a learned bias a head (Raffel et al. 2020, §2.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.base.checks import above, at_least
from transpect.core.context import Tags
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, distances


@dataclass(frozen=True)
class T5Buckets(Position, kind="t5"):
    """score(i, j) + b[h, bucket(j − i)], one table for all layers of a stack.

    Attributes:
        buckets: how many; half of them are exact in a causal stack, a quarter each way in one that looks ahead.
        max_distance: from here on all distances share the last bucket.
    """

    buckets: int = 32
    max_distance: int = 128

    def build(self, dims: Dims) -> PositionModule:
        exact = self.buckets // (4 if dims.looks_ahead else 2)
        at_least("T5Buckets.buckets", self.buckets, 4 if dims.looks_ahead else 2)
        above("T5Buckets.max_distance", self.max_distance, exact)
        return T5Module(self.buckets, self.max_distance, dims.n_heads, dims.looks_ahead)


class T5Module(PositionModule):
    def __init__(self, buckets: int, max_distance: int, n_heads: int, both_ways: bool) -> None:
        super().__init__()
        self.buckets, self.max_distance, self.both_ways = buckets, max_distance, both_ways
        self.table = nn.Embedding(buckets, n_heads)

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        index = bucket(-distances(query, key), self.buckets, self.max_distance, both_ways=self.both_ways)
        geometry = Geometry()
        geometry.bias = (
            self.table(index).movedim(-1, 1).contiguous()
        )  # fused kernels want S last; [B|1, T, S, H] -> [B|1, H, T, S]
        return geometry


def bucket(relative: Tensor, buckets: int, max_distance: int, *, both_ways: bool) -> Tensor:
    """The bucket of ``relative`` = key position − query position.

    Distances below ``exact`` have a bucket each; from there to ``max_distance`` the buckets grow by equal ratios.
    Both ways: keys ahead use the upper half. Otherwise keys ahead all fall in bucket 0.
    """
    first = torch.zeros_like(relative)
    if both_ways:
        buckets //= 2
        first = (relative > 0).long() * buckets
        distance = relative.abs()
    else:
        distance = (-relative).clamp(min=0)
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, far)
