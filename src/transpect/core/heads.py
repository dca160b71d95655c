"""What a model says at its end: next tokens, masked tokens, a class, a class per token, an embedding.

Axes: B batch, T query, D model, V vocabulary, W width of a token vector, C classes.

A tied head has no weight of its own: it reads the token table, so tying survives `.to()`, saving and loading.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.base.checks import above, share, within
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.core.embeddings import Scaled
from transpect.core.feedforward import ACTIVATIONS, Activation
from transpect.core.initialization import Readout
from transpect.core.norms import LayerNorm, Norm
from transpect.core.recording import recording
from transpect.core.tags import Tags

Pool = Literal["first", "last", "mean"]

MOST_CLASSES = 2**24
"""A config.json spells a name for each of them."""


class Head(Variant):
    """A head with its options."""

    def build(self, size: Sizes) -> nn.Module:
        """A module of (hidden [B, T, D], tags, token table [V, W]) -> Tensor."""
        raise AssertionError("abstract")


@dataclass(frozen=True)
class Sizes:
    """What a head needs to know of its model.

    Attributes:
        d_model: D.
        vocab_size: V.
        token_width: W, of a token vector; None is D (see `Factor`).
    """

    d_model: int
    vocab_size: int
    token_width: int | None = None

    @property
    def width(self) -> int:
        """W."""
        return self.d_model if self.token_width is None else self.token_width


@dataclass(frozen=True)
class Transform:
    """norm(act(dense(x))), before a head's own projection."""

    act: Activation = "tanh"
    bias: bool = True
    norm: Norm | None = None


@dataclass(frozen=True)
class CausalLM(Head, kind="causal_lm"):
    """logits = hidden · Wᵀ, [B, T, V]; hidden is first narrowed to the width of token vectors where that is not D.

    Attributes:
        tied: W is the token table.
        bias: add a bias over the vocabulary.
        rescaled: multiply hidden by 1/√D first (T5 with a tied head).
        soft_cap: c in c·tanh(logits / c) (Gemma 2).
    """

    tied: bool = True
    bias: bool = False
    rescaled: bool = False
    soft_cap: float | None = None

    def __post_init__(self) -> None:
        above("soft_cap", self.soft_cap, 0)

    def build(self, size: Sizes) -> nn.Module:
        return CausalLMHead(self, size)


@dataclass(frozen=True)
class MaskedLM(Head, kind="masked_lm"):
    """logits = norm(act(dense(hidden))) · Wᵀ + bias, [B, T, V] (BERT, appendix A.2)."""

    tied: bool = True
    bias: bool = True
    dense_bias: bool = True
    act: Activation = "gelu"
    norm: Norm = field(default_factory=lambda: LayerNorm(eps=1e-12))

    def build(self, size: Sizes) -> nn.Module:
        return MaskedLMHead(self, size)


@dataclass(frozen=True)
class SequenceClass(Head, kind="sequence_class"):
    """Logits [B, C] from one pooled vector.

    Attributes:
        n_classes: C.
        pool: ``first`` (BERT's [CLS]), ``last`` real token (GPT), or ``mean`` of the real tokens.
        transform: between pooling and classes (BERT's pooler).
        bias: whether the classes have one.
        dropout: before the classes.
    """

    n_classes: int
    pool: Pool = "first"
    transform: Transform | None = field(default_factory=Transform)
    bias: bool = True
    dropout: float = 0.1

    def __post_init__(self) -> None:
        within("n_classes", self.n_classes, 1, MOST_CLASSES)
        share("dropout", self.dropout)

    def build(self, size: Sizes) -> nn.Module:
        return SequenceClassHead(self, size.d_model)


@dataclass(frozen=True)
class TokenClass(Head, kind="token_class"):
    """Logits [B, T, C].

    Attributes:
        n_classes: C.
        transform: before the classes (ELECTRA's discriminator).
    """

    n_classes: int
    transform: Transform | None = None
    dropout: float = 0.1

    def __post_init__(self) -> None:
        within("n_classes", self.n_classes, 1, MOST_CLASSES)
        share("dropout", self.dropout)

    def build(self, size: Sizes) -> nn.Module:
        return TokenClassHead(self, size.d_model)


@dataclass(frozen=True)
class Pooled(Head, kind="pooled"):
    """One vector a sequence, [B, D].

    Attributes:
        pool: as in `SequenceClass`.
        transform: after pooling (BERT's pooler).
        normalize: scale to length 1 (sentence embeddings).
    """

    pool: Pool = "mean"
    transform: Transform | None = None
    normalize: bool = False

    def build(self, size: Sizes) -> nn.Module:
        return PooledHead(self, size.d_model)


class TokenHead(nn.Module):
    """A head with logits for each token: one linear map of features, [..., W] -> [..., V]."""

    def features(self, hidden: Tensor) -> Tensor:
        """What that map reads: [..., D] -> [..., W]."""
        raise AssertionError("abstract")


class CausalLMHead(TokenHead):
    def __init__(self, options: CausalLM, size: Sizes) -> None:
        super().__init__()
        own = size.token_width is not None
        self.narrow = nn.Linear(size.d_model, size.width, bias=False) if own else nn.Identity()
        self.rescale = Scaled(size.d_model**-0.5) if options.rescaled else nn.Identity()
        self.project = Projection(size, tied=options.tied, bias=options.bias)
        self.cap = nn.Identity() if options.soft_cap is None else SoftCap(options.soft_cap)

    def features(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.rescale(self.narrow(hidden))
        return out

    def forward(self, hidden: Tensor, tags: Tags, table: Tensor) -> Tensor:
        out: Tensor = self.cap(self.project(self.features(hidden), table))
        return out


class MaskedLMHead(TokenHead):
    def __init__(self, options: MaskedLM, size: Sizes) -> None:
        super().__init__()
        self.dense = nn.Linear(size.d_model, size.width, bias=options.dense_bias)
        self.act = ACTIVATIONS[options.act]
        self.norm = options.norm.build(size.width)
        self.project = Projection(size, tied=options.tied, bias=options.bias)

    def features(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.norm(self.act(self.dense(hidden)))
        return out

    def forward(self, hidden: Tensor, tags: Tags, table: Tensor) -> Tensor:
        out: Tensor = self.project(self.features(hidden), table)
        return out


class SequenceClassHead(nn.Module):
    def __init__(self, options: SequenceClass, d_model: int) -> None:
        super().__init__()
        self.pool = options.pool
        self.transform = _transform(options.transform, d_model)
        self.dropout = nn.Dropout(options.dropout)
        self.project = nn.Linear(d_model, options.n_classes, bias=options.bias)

    def forward(self, hidden: Tensor, tags: Tags, table: Tensor) -> Tensor:
        out: Tensor = self.project(self.dropout(self.transform(pooled(hidden, tags, self.pool))))
        return out


class TokenClassHead(TokenHead):
    def __init__(self, options: TokenClass, d_model: int) -> None:
        super().__init__()
        self.transform = _transform(options.transform, d_model)
        self.dropout = nn.Dropout(options.dropout)
        self.project = nn.Linear(d_model, options.n_classes)

    def features(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.transform(hidden))
        return out

    def forward(self, hidden: Tensor, tags: Tags, table: Tensor) -> Tensor:
        out: Tensor = self.project(self.features(hidden))
        return out


class PooledHead(nn.Module):
    def __init__(self, options: Pooled, d_model: int) -> None:
        super().__init__()
        self.pool = options.pool
        self.transform = _transform(options.transform, d_model)
        self.normalize = UnitLength() if options.normalize else nn.Identity()

    def forward(self, hidden: Tensor, tags: Tags, table: Tensor) -> Tensor:
        out: Tensor = self.normalize(self.transform(pooled(hidden, tags, self.pool)))
        return out


class Projection(Readout):
    """Hidden [..., W] -> vocabulary [..., V], by the token table (tied) or a weight of its own."""

    def __init__(self, size: Sizes, *, tied: bool, bias: bool) -> None:
        super().__init__()
        self.weight = None if tied else nn.Parameter(torch.empty(size.vocab_size, size.width))
        self.bias = nn.Parameter(torch.zeros(size.vocab_size)) if bias else None

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        return functional.linear(hidden, table if self.weight is None else self.weight, self.bias)


class TransformModule(nn.Module):
    def __init__(self, options: Transform, d_model: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model, bias=options.bias)
        self.act = ACTIVATIONS[options.act]
        self.norm = nn.Identity() if options.norm is None else options.norm.build(d_model)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.act(self.dense(x)))
        return out


def _transform(options: Transform | None, d_model: int) -> nn.Module:
    return nn.Identity() if options is None else TransformModule(options, d_model)


class SoftCap(nn.Module):
    """c·tanh(x / c)."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, x: Tensor) -> Tensor:
        return self.cap * torch.tanh(x / self.cap)


class UnitLength(nn.Module):
    """x / ‖x‖."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(x, dim=-1)


def pooled(hidden: Tensor, tags: Tags, pool: Pool) -> Tensor:
    """[B, T, D] -> [B, D] over the real tokens, wherever the padding stands.

    Raises:
        ConfigError: a row without any real token.
    """
    real = tags.position >= 0  # [B, T]
    if tags.start is None and not recording() and not bool(real.any(-1).all()):
        raise ConfigError("a sequence must have at least one token to be pooled")
    if pool == "mean":
        weights = real.to(hidden.dtype) / real.sum(-1, keepdim=True)
        return torch.einsum("btd,bt->bd", hidden, weights)
    columns = torch.arange(real.shape[1], device=real.device)
    if pool == "first":
        index = torch.where(real, columns, real.shape[1]).amin(-1)
    else:
        index = torch.where(real, columns, -1).amax(-1)
    return hidden[torch.arange(index.shape[0], device=index.device), index]
