"""From ids to vectors: token, segment and absolute position, in this order; then norm and dropout.

Axes: B batch, T query, D model, V vocabulary, W width of a token vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.base.checks import MANY, share, within
from transpect.base.errors import ConfigError
from transpect.core.norms import Norm
from transpect.core.positions import PositionModule
from transpect.core.recording import recording
from transpect.core.tags import Tags


@dataclass(frozen=True)
class Factor:
    """Token vectors of a width of their own, and a projection to the model's.

    Attributes:
        width: W.
        bias: of the projection.
        early: project token vectors at once (OPT); otherwise everything of a way in happens at width W, and its result
            is projected (ALBERT §3.1, ELECTRA).
    """

    width: int
    bias: bool = True
    early: bool = False

    def __post_init__(self) -> None:
        within("Factor.width", self.width)


@dataclass(frozen=True)
class EmbeddingConfig:
    """x = token·(√D if scaled) + segment + position, then norm, then dropout.

    Attributes:
        scaled: multiply token vectors by √D (Vaswani et al. 2017, §3.4).
        token_types: how many segment embeddings; 0 is none (BERT: 2).
        norm: a norm on the sum (BERT).
        dropout: on the result.
        factor: whether token vectors have a width of their own.
    """

    scaled: bool = False
    token_types: int = 0
    norm: Norm | None = None
    dropout: float = 0.0
    factor: Factor | None = None

    def __post_init__(self) -> None:
        within("token_types", self.token_types, 0, MANY)
        share("dropout", self.dropout)

    @property
    def token_width(self) -> int | None:
        """W where it is stated apart from D."""
        return None if self.factor is None else self.factor.width

    def width(self, d_model: int) -> int:
        """W: of a row of the token table."""
        return d_model if self.factor is None else self.factor.width

    def inner_width(self, d_model: int) -> int:
        """The width at which segments, positions and the norm act."""
        return d_model if self.factor is None or self.factor.early else self.factor.width


class SegmentEmbedding(nn.Module):
    """Adds a learned vector for each token's type; without types all tokens are of type 0."""

    def __init__(self, token_types: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(token_types, d_model)

    def forward(self, x: Tensor, token_types: Tensor | None) -> Tensor:
        if token_types is None:
            return x + self.table.weight[0]
        check_ids(token_types, self.table.num_embeddings, "token_types")
        out: Tensor = x + self.table(token_types)
        return out


class NoSegmentEmbedding(nn.Module):
    """For models that know no token types; being given some is an error."""

    def forward(self, x: Tensor, token_types: Tensor | None) -> Tensor:
        if token_types is not None:
            raise ConfigError("this model has no segment embeddings", remedy="Leave token_types out.")
        return x


class Embeddings(nn.Module):
    """One tower's way in. The token table is the model's, and is passed to `forward`."""

    def __init__(self, config: EmbeddingConfig, d_model: int) -> None:
        super().__init__()
        inner = config.inner_width(d_model)
        self.widen = _projection(config.factor, d_model, early=True)
        self.scale = Scaled(d_model**0.5) if config.scaled else nn.Identity()
        types = config.token_types
        self.segment = SegmentEmbedding(types, inner) if types else NoSegmentEmbedding()
        self.norm = nn.Identity() if config.norm is None else config.norm.build(inner)
        self.dropout = nn.Dropout(config.dropout)
        self.project = _projection(config.factor, d_model, early=False)

    def forward(self, tokens: Tensor, tags: Tags, positions: PositionModule, token_types: Tensor | None) -> Tensor:
        """Token vectors [B, T, W] -> [B, T, D]."""
        x = positions.embed(self.segment(self.scale(self.widen(tokens)), token_types), tags)
        out: Tensor = self.project(self.dropout(self.norm(x)))
        return out


def _projection(factor: Factor | None, d_model: int, *, early: bool) -> nn.Module:
    if factor is None or factor.early != early:
        return nn.Identity()
    return nn.Linear(factor.width, d_model, bias=factor.bias)


class Scaled(nn.Module):
    """x · factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def check_ids(ids: Tensor, size: int, name: str = "ids") -> None:
    """Refuse ids that are not [B, T] whole numbers below ``size``.

    Raises:
        ConfigError: wrong shape, dtype or range.
    """
    if ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise ConfigError(
            f"{name} must be [B, T] whole numbers",
            value=f"{list(ids.shape)} of {ids.dtype}",
            remedy="For one sequence pass ids[None].",
        )
    # on a GPU the look would wait for the device; its own assertion catches the same there
    if (
        not recording()
        and ids.device.type == "cpu"
        and ids.numel()
        and not (int(ids.min()) >= 0 and int(ids.max()) < size)
    ):
        worst = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise ConfigError(
            f"{name} must be at least 0 and below {size}",
            value=worst,
            remedy="The tokenizer belongs to another model, or padding was not replaced by a real id.",
        )
