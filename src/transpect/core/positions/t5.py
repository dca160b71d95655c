"""Relative positions in logarithmic buckets, a learned bias a head (Raffel et al. 2020, §2.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.base.checks import LARGEST, above, at_least, at_most
from transpect.base.errors import ConfigError
from transpect.core.context import Tags
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, Relation, distances
from transpect.core.summaries import block_of


@dataclass(frozen=True)
class T5Buckets(Position, kind="t5"):
    """score(i, j) + b[h, bucket(j − i)], one table for all layers of a stack.

    Attributes:
        buckets: how many; half of them are exact in a causal stack, a quarter each way in one that looks ahead.
        max_distance: from here on all distances share the last bucket.
        per_layer: each layer has a table of its own (UMT5, Chung et al. 2023, §3).
        of_blocks: keys that stand for blocks of tokens (`Summaries`) have a second table, over distances counted in
            blocks (LongT5 §3.2).
    """

    buckets: int = 32
    max_distance: int = 128
    per_layer: bool = False
    of_blocks: bool = False

    def __post_init__(self) -> None:
        at_most("T5Buckets.buckets", self.buckets, LARGEST)
        at_most("T5Buckets.max_distance", self.max_distance, LARGEST)

    def build(self, dims: Dims) -> PositionModule:
        exact = self.buckets // (4 if dims.looks_ahead else 2)
        at_least("T5Buckets.buckets", self.buckets, 4 if dims.looks_ahead else 2)
        above("T5Buckets.max_distance", self.max_distance, exact)
        if not self.of_blocks:
            return (OwnTables if self.per_layer else SharedTable)(self, dims)
        if self.per_layer or dims.block_size is None:
            raise ConfigError("T5Buckets.of_blocks needs summaries, and one table for all layers")
        return TwoTables(self, dims, dims.block_size)


class _Buckets(PositionModule):
    """A child says where the table is."""

    def __init__(self, options: T5Buckets, dims: Dims) -> None:
        super().__init__()
        self.buckets, self.max_distance = options.buckets, options.max_distance
        self.n_heads, self.both_ways = dims.n_heads, dims.looks_ahead

    def index(self, query: Tags, key: Tags) -> Tensor:
        """The bucket of each query and key, [B|1, T, S]."""
        return bucket(-distances(query, key), self.buckets, self.max_distance, both_ways=self.both_ways)


class SharedTable(_Buckets):
    def __init__(self, options: T5Buckets, dims: Dims) -> None:
        super().__init__(options, dims)
        self.table = nn.Embedding(self.buckets, self.n_heads)

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        geometry = Geometry()
        geometry.bias = _bias(self.table, self.index(query, key))
        return geometry


class TwoTables(SharedTable):
    """One for tokens, one for blocks of them."""

    def __init__(self, options: T5Buckets, dims: Dims, size: int) -> None:
        super().__init__(options, dims)
        self.block_table, self.size = nn.Embedding(self.buckets, self.n_heads), size

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        block = key.position[:, query.shape[1] :].clamp(min=0) // self.size  # [B, G]
        away = block[:, None, :] - block_of(query, self.size)[:, :, None]  # [B, T, G]
        of_blocks = _bias(self.block_table, bucket(away, self.buckets, self.max_distance, both_ways=self.both_ways))
        of_tokens = _bias(self.table, self.index(query, query))
        geometry = Geometry()
        geometry.bias = torch.cat([of_tokens.expand(len(of_blocks), -1, -1, -1), of_blocks], -1)
        return geometry


class OwnTables(_Buckets):
    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        return BucketGeometry(self.index(query, key))

    def relation(self) -> Relation:
        return BucketRelation(self.buckets, self.n_heads)


class BucketGeometry(Geometry):
    """``index`` [B|1, T, S] says the bucket."""

    def __init__(self, index: Tensor) -> None:
        self.index = index


class BucketRelation(Relation):
    def __init__(self, buckets: int, n_heads: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, n_heads)

    def forward(self, query: Tensor, geometry: Geometry, scale: float) -> tuple[Tensor, Tensor | None]:
        assert isinstance(geometry, BucketGeometry)
        return query, _bias(self.table, geometry.index)


def _bias(table: nn.Embedding, index: Tensor) -> Tensor:
    """[B|1, T, S] -> [B|1, H, T, S]; fused kernels want S last."""
    bias: Tensor = table(index)  # [B|1, T, S, H]
    return bias.movedim(-1, 1).contiguous()


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
