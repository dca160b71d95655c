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
from transpect.core.bias import Bias
from transpect.core.positions.base import Dims, Geometry, Position, PositionModule, Relation, Scores
from transpect.core.positions.learned import Learned
from transpect.core.tags import Columns, Tags


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
    def scores(self) -> Scores:
        return "blocks"

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
        inner = self.inner.geometry(query, new, key, dtype)
        return RepeatedGeometry(inner, _Counted(inner.bias, draws, key, self.options, dtype))


class RepeatedGeometry(Geometry):
    """Another geometry, with a bias that holds its bias."""

    def __init__(self, inner: Geometry, bias: Bias) -> None:
        self.inner, self.bias = inner, bias

    def rotate_query(self, query: Tensor) -> Tensor:
        return self.inner.rotate_query(query)

    def rotate_key(self, key: Tensor) -> Tensor:
        return self.inner.rotate_key(key)


class _Counted(Bias):
    """log(1 + times) for the first block's keys, where the query ``draws`` [B, T]; ``inner`` is added."""

    def __init__(
        self, inner: Bias | None, draws: Tensor, key: Tags, options: RepeatedBlock, dtype: torch.dtype
    ) -> None:
        self.inner, self.draws, self.dtype = inner, draws, dtype
        self.inputs = () if inner is None else inner.inputs
        self.in_block = key.position < options.size  # [B, S]
        self.more = math.log(1 + options.times)

    def narrow(self, inputs: tuple[Tensor, ...], rows: slice, columns: Columns) -> tuple[Tensor, ...]:
        return inputs if self.inner is None else self.inner.narrow(inputs, rows, columns)

    def tile(self, narrow: tuple[Tensor, ...], rows: slice, columns: Columns) -> Tensor:
        counted = self.draws[:, rows, None] & self.in_block[:, None, columns]  # [B, t, s]
        bias = counted[:, None].to(self.dtype) * self.more
        return bias if self.inner is None else bias + self.inner.tile(narrow, rows, columns)
