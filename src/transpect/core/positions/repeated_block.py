"""A scheme whose first block of keys counts several times.

Axes: B batch, T query, S key, E head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.base.errors import ConfigError
from transpect.core.context import Tags
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, Relation
from transpect.core.positions.learned import Learned


@dataclass(frozen=True)
class RepeatedBlock(Position, kind="repeated_block"):
    """``inner``, with log(1 + times) added to the scores of the first block's keys: in the softmax each of them then
    counts 1 + times times.

    `transformers`' BigBird computes this outside training: its random blocks are drawn only in training, and become
    ``times`` copies of block 0 otherwise. Queries of the first and last block draw none, so they count each key once,
    and so do all queries of sequences that are not longer than ``above``, which are attended to in full.

    Attributes:
        size: of a block, in tokens.
        times: how many copies besides the first.
        above: sequences up to this length have no copies.
        inner: what is done otherwise.
    """

    size: int = 64
    times: int = 3
    above: int = 704
    inner: Position = field(default_factory=Learned)

    def __post_init__(self) -> None:
        within("RepeatedBlock.size", self.size)
        within("RepeatedBlock.times", self.times)
        within("RepeatedBlock.above", self.above, 0)

    @property
    def embeds(self) -> bool:
        return self.inner.embeds

    @property
    def bounded(self) -> bool:
        return self.inner.bounded

    @property
    def reads_length(self) -> bool:
        return True

    def build(self, dims: Dims) -> PositionModule:
        return RepeatedBlockModule(self, self.inner.build(dims))


class RepeatedBlockModule(PositionModule):
    def __init__(self, options: RepeatedBlock, inner: PositionModule) -> None:
        super().__init__()
        if type(inner.relation()) is not Relation:
            raise ConfigError("a block can't be repeated under scores that depend on the query", value=options.inner)
        self.options, self.inner = options, inner

    def embed(self, x: Tensor, tags: Tags) -> Tensor:
        return self.inner.embed(x, tags)

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        size = self.options.size
        last = (key.horizon - 1)[:, None] // size  # [B, 1]
        block = query.position.div(size, rounding_mode="floor")  # [B, T]
        draws = (block > 0) & (block < last) & (key.horizon > self.options.above)[:, None]
        repeated = draws[:, :, None] & (key.position < size)[:, None, :]  # [B, T, S]
        bias = repeated[:, None].to(dtype) * math.log(1 + self.options.times)
        return RepeatedGeometry(self.inner.geometry(query, new, key, dtype), bias)


class RepeatedGeometry(Geometry):
    """Another geometry and a further bias [B, 1, T, S]."""

    def __init__(self, inner: Geometry, bias: Tensor) -> None:
        self.inner = inner
        self.bias = bias if inner.bias is None else bias + inner.bias

    def rotate_query(self, query: Tensor) -> Tensor:
        return self.inner.rotate_query(query)

    def rotate_key(self, key: Tensor) -> Tensor:
        return self.inner.rotate_key(key)
