"""What a position scheme is: where it can act on a Transformer, and nothing it must do everywhere.

Axes: B batch, T query, S key, D model, H heads, E head.

A scheme may add to the embeddings (`PositionModule.embed`), turn queries and keys (`Geometry.rotate_query` and
`rotate_key`), or add to the scores (`Geometry.bias`, and `PositionModule.relation` where that depends on the query).
One file holds one scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from transpect.base.codec import Variant
from transpect.core.bias import Bias
from transpect.core.tags import Tags

Scores = Literal["nothing", "distance", "query", "blocks"]
"""What a scheme adds to the scores: nothing, a number for each distance, one that depends on the query too, or one that
depends on which block of the sequence a key is in."""


Mover = Callable[[Tensor, Tensor], Tensor]
"""Moves cached keys [B, K, S, E], which `Geometry.rotate_key` has turned, on by so many positions [B|1]."""


def unmoved(key: Tensor, by: Tensor) -> Tensor:
    """The `Mover` of keys that positions don't turn."""
    return key


@dataclass(frozen=True)
class Dims:
    """What a scheme may need to know of the stack that it serves.

    Attributes:
        d_model: D.
        d_embed: the width that `embed` meets.
        n_heads: H.
        head_dim: E.
        context_length: the longest sequence.
        looks_ahead: whether a token may see a later one.
        block_size: of the blocks of tokens that further keys stand for (`Summaries`); None where there are none.
    """

    d_model: int
    d_embed: int
    n_heads: int
    head_dim: int
    context_length: int
    looks_ahead: bool
    block_size: int | None = None


class Geometry:
    """The positions of one pass, prepared once for all layers. The base has none."""

    bias: Bias | None = None
    """Added to the scaled scores."""

    def rotate_query(self, query: Tensor) -> Tensor:
        """Turn queries [B, H, T, E] by their positions."""
        return query

    def rotate_key(self, key: Tensor) -> Tensor:
        """Turn new keys [B, K, T, E] by their positions, before they are cached."""
        return key


NO_GEOMETRY = Geometry()


class Relation(nn.Module):
    """A layer's own part in relating a query to a key. The base has no parameters."""

    def forward(self, query: Tensor, geometry: Geometry, scale: float) -> tuple[Tensor, Bias | None]:
        """(query [B, H, T, E] to score keys with, bias on the scaled scores)."""
        return query, geometry.bias


class PositionModule(nn.Module):
    """A stack's share of a scheme. The base does nothing anywhere."""

    def embed(self, x: Tensor, tags: Tags) -> Tensor:
        """Add absolute positions to embeddings [B, T, D]."""
        return x

    def geometry(self, query: Tags, new: Tags, key: Tags, dtype: torch.dtype) -> Geometry:
        """Prepare one pass, in the model's dtype.

        Args:
            query: the tokens that look.
            new: the keys that this pass computes (``query`` itself, or remembered tokens and it).
            key: all keys, cached ones first.
        """
        return NO_GEOMETRY

    def relation(self) -> Relation:
        """Build one layer's part."""
        return Relation()


class Position(Variant):
    """A position scheme with its options."""

    @property
    def scores(self) -> Scores:
        """What it adds to the scores, as far as a kernel may have to know when it is chosen."""
        return "nothing"

    @property
    def embeds(self) -> bool:
        """Whether it adds to the embeddings, which a stack does once for all its layers."""
        return False

    @property
    def reads_length(self) -> bool:
        """Whether it depends on how long a sequence is in all (`Tags.horizon`)."""
        return False

    @property
    def bounded(self) -> bool:
        """Whether it knows no position beyond the model's context."""
        return False

    @property
    def relative(self) -> bool:
        """Whether scores depend on how far apart query and key stand, and on neither's own position."""
        return not (self.embeds or self.bounded or self.reads_length)

    def mover(self, head_dim: int) -> Mover:
        """What a cached key has to do with its position, where `relative`: the base turns none."""
        return unmoved

    def build(self, dims: Dims) -> PositionModule:
        """The scheme's parameters and buffers for one stack."""
        raise AssertionError("abstract")


def row(tags: Tags) -> Tensor:
    """Positions [B, T], or [1, T] where all rows are known to be alike; padding counts as position 0."""
    return (tags.position if tags.start is None else tags.position[:1]).clamp(min=0)


def sinusoid(position: Tensor, dim: int, base: float = 10000.0) -> tuple[Tensor, Tensor]:
    """(sin, cos) of ``position / base^(2i/dim)``, each [..., ceil(dim/2)], float64."""
    i = torch.arange(0, dim, 2, dtype=torch.float64, device=position.device)
    angle = position.to(torch.float64)[..., None] * base ** (-i / dim)
    return angle.sin(), angle.cos()
