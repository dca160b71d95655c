"""Relative positions in logarithmic buckets, a learned bias a head (Raffel et al. 2020, §2.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.base.checks import LARGEST, above, at_least, at_most
from transpect.base.errors import ConfigError
from transpect.core.bias import Bias, DistanceBias, Distances
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, Relation, Scores
from transpect.core.summaries import block_of
from transpect.core.tags import Columns, Tags


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

    @property
    def scores(self) -> Scores:
        return "blocks" if self.of_blocks else "distance"

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

    def look_up(self, inputs: tuple[Tensor, ...], distance: Tensor) -> Tensor:
        """Table and distances [...] -> [..., H]."""
        index = bucket(-distance, self.buckets, self.max_distance, both_ways=self.both_ways)
        return functional.embedding(index, inputs[0])


class SharedTable(_Buckets):
    def __init__(self, options: T5Buckets, dims: Dims) -> None:
        super().__init__(options, dims)
        self.table = nn.Embedding(self.buckets, self.n_heads)

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        geometry = Geometry()
        geometry.bias = DistanceBias(Distances(query, key), self.look_up, (self.table.weight,))
        return geometry


class TwoTables(SharedTable):
    """One for tokens, one for blocks of them."""

    def __init__(self, options: T5Buckets, dims: Dims, size: int) -> None:
        super().__init__(options, dims)
        self.block_table, self.size = nn.Embedding(self.buckets, self.n_heads), size

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        geometry = Geometry()
        geometry.bias = _TokensAndBlocks(self, query, key)
        return geometry


class _TokensAndBlocks(Bias):
    """Distances in tokens for the first T keys, in blocks for those after them."""

    def __init__(self, tables: TwoTables, query: Tags, key: Tags) -> None:
        self.tables = tables
        self.inputs = (tables.table.weight, tables.block_table.weight)
        self.distances = Distances(replace(query, start=None), key)
        self.query_block = block_of(query, tables.size)  # [B, T]
        self.key_block = key.position.clamp(min=0) // tables.size  # [B, T+G]
        self.stands_for_block = torch.arange(key.shape[1], device=key.position.device) >= query.shape[1]  # [T+G]

    def tile(self, narrow: tuple[Tensor, ...], rows: slice, columns: Columns) -> Tensor:
        in_blocks = self.query_block[:, rows, None] - self.key_block[:, None, columns]  # [B, t, s]
        of_tokens = self.tables.look_up(narrow[:1], self.distances.tile(rows, columns))
        of_blocks = self.tables.look_up(narrow[1:], in_blocks)
        both = torch.where(self.stands_for_block[columns, None], of_blocks, of_tokens)  # [B, t, s, H]
        return both.movedim(-1, 1).contiguous()


class OwnTables(_Buckets):
    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        return BucketGeometry(Distances(query, key), self.look_up)

    def relation(self) -> Relation:
        return BucketRelation(self.buckets, self.n_heads)


class BucketGeometry(Geometry):
    """``look_up`` finds a layer's table at the ``distances``."""

    def __init__(self, distances: Distances, look_up: Callable[[tuple[Tensor, ...], Tensor], Tensor]) -> None:
        self.distances, self.look_up = distances, look_up


class BucketRelation(Relation):
    def __init__(self, buckets: int, n_heads: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, n_heads)

    def forward(self, query: Tensor, geometry: Geometry, scale: float) -> tuple[Tensor, Bias | None]:
        assert isinstance(geometry, BucketGeometry)
        return query, DistanceBias(geometry.distances, geometry.look_up, (self.table.weight,))


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
