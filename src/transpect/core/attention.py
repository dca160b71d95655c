"""Multi-head attention: MHA, GQA and MQA, self and cross.

Axes: B batch, T query, S key, D model, H heads, K key-value heads, E head.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from transpect.base.checks import MANY, above, share, within
from transpect.base.errors import ConfigError
from transpect.core.bias import Bias
from transpect.core.context import Context, Tap
from transpect.core.kernels import Demands, Exact, Kernel, Scoring, Sdpa, Sizes
from transpect.core.norms import Norm
from transpect.core.positions import Geometry, Relation, Scores
from transpect.core.summaries import NoSummaries
from transpect.core.view import View
from transpect.core.visibility import Visibility


@dataclass(frozen=True)
class Pass:
    """What a layer needs to know in one forward pass; layers of one kind share all of it but their number.

    Attributes:
        layer: its number.
        context: of the pass.
        self_view: who sees whom in self-attention.
        global_view: the same for global tokens alone: others see nothing.
        cross_view: the same in cross-attention.
        geometry: of positions.
        shares: what `Summaries` are made by.
    """

    layer: int
    context: Context
    self_view: View
    global_view: View
    cross_view: View
    geometry: Geometry
    shares: Tensor


@dataclass(frozen=True)
class QkNorm:
    """A norm on queries and keys before positions turn them (Henry et al. 2020; Dehghani et al. 2023, §2).

    Attributes:
        norm: which.
        over: ``head``, each head over E by one weight (Qwen3, Gemma 3); ``each_head``, by a weight of its own
            (StableLM); ``all_heads``, all of a projection at once (OLMo 2).
    """

    norm: Norm
    over: Literal["head", "each_head", "all_heads"] = "head"

    def build(self, heads: int, head_dim: int) -> nn.Module:
        """A module of [B, H, T, E] -> [B, H, T, E]."""
        if self.over == "head":
            return self.norm.build(head_dim)
        if self.over == "all_heads":
            return NormOfAllHeads(self.norm.build(heads * head_dim))
        return NormOfEachHead(self.norm.build(head_dim) for _ in range(heads))


class NormOfAllHeads(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        turned = x.transpose(1, 2)  # [B, T, H, E]
        flat: Tensor = self.norm(turned.flatten(2))  # [B, T, H·E]
        return flat.view(turned.shape).transpose(1, 2)


class NormOfEachHead(nn.ModuleList):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([norm(head) for norm, head in zip(self, x.unbind(1), strict=True)], 1)


@dataclass(frozen=True)
class AttentionConfig:
    """head_h = softmax(q_h k_gᵀ · scale + bias) v_g; output = concat(heads) W_o (Vaswani et al. 2017, §3.2).

    Attributes:
        n_heads: H.
        n_kv_heads: K, which divides H; None is H (MHA), 1 is MQA, between is GQA.
        head_dim: E; None is D/H.
        qkv_bias: biases on the query, key and value projections.
        out_bias: bias on the output projection.
        qk_norm: a norm on queries and keys before positions turn them.
        global_projections: tokens tagged as global look through projections of their own (see `GlobalSelfAttention`).
        clip: projections of queries, keys and values are held within ±clip (MPT).
        soft_cap: c in c·tanh(score/c) (Gemma 2).
        scale: factor on q·k; None is 1/√E.
        dropout: probability that an attention weight is dropped in training.
        kernel: how it is computed.
    """

    n_heads: int
    n_kv_heads: int | None = None
    head_dim: int | None = None
    qkv_bias: bool = True
    out_bias: bool = True
    qk_norm: QkNorm | None = None
    global_projections: bool = False
    clip: float | None = None
    soft_cap: float | None = None
    scale: float | None = None
    dropout: float = 0.0
    kernel: Kernel = field(default_factory=Sdpa)

    def __post_init__(self) -> None:
        within("n_heads", self.n_heads, 1, MANY)
        within("head_dim", self.head_dim)
        above("soft_cap", self.soft_cap, 0)
        above("scale", self.scale, 0)
        above("clip", self.clip, 0)
        share("dropout", self.dropout)
        if self.kv_heads < 1 or self.n_heads % self.kv_heads:
            raise ConfigError(
                "n_heads must be a multiple of n_kv_heads",
                value=f"{self.n_heads} and {self.n_kv_heads}",
                remedy="Each key-value head serves the same number of query heads.",
            )

        if self.scale is not None and not self.kernel.scales:
            raise ConfigError(
                f"the kernel `{self.kernel.kind}` has no q·k to scale",
                value=f"scale={self.scale}",
                remedy="Leave scale out.",
            )
        if self.global_projections and not isinstance(self.kernel, Exact):
            raise ConfigError(
                "global_projections need a kernel that computes softmax attention", value=f"kernel {self.kernel.kind}"
            )

    def check_kernel(self, visibility: Visibility, scores: Scores) -> None:
        """Whether the kernel can serve a layer with such a rule and with positions that add this to the scores.

        Raises:
            ConfigError: it can't.
        """
        self.kernel.check(Demands(visibility, scores, self.soft_cap, self.dropout))

    @property
    def kv_heads(self) -> int:
        """K."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def norms(self) -> int:
        """How many norms on single heads there are."""
        return self.n_heads if self.qk_norm is not None and self.qk_norm.over == "each_head" else 1

    def width(self, d_model: int) -> int:
        """E.

        Raises:
            ConfigError: D is no multiple of H and head_dim is not given.
        """
        if self.head_dim is not None:
            return self.head_dim
        if d_model % self.n_heads:
            raise ConfigError(
                "d_model must be a multiple of n_heads",
                value=f"{d_model} and {self.n_heads}",
                remedy="Change one of them, or set head_dim.",
            )
        return d_model // self.n_heads

    def sizes(self, d_model: int, context_length: int) -> Sizes:
        """What its kernel may need to know."""
        return Sizes(self.n_heads, self.kv_heads, self.width(d_model), context_length)


class Attention(nn.Module):
    """Projections, kernel and output; a child says where queries and keys come from."""

    def __init__(self, config: AttentionConfig, d_model: int, context_length: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.n_heads, config.kv_heads, config.width(d_model)
        self.scale = self.head_dim**-0.5 if config.scale is None else config.scale
        self.soft_cap, self.dropout = config.soft_cap, config.dropout
        self.kernel = config.kernel.build(config.sizes(d_model, context_length))
        kv_dim = self.kv_heads * self.head_dim
        self.query = projection(config, d_model, self.heads * self.head_dim)
        self.key = projection(config, d_model, kv_dim)
        self.value = projection(config, d_model, kv_dim)
        self.out = nn.Linear(self.heads * self.head_dim, d_model, bias=config.out_bias)
        norm = config.qk_norm
        self.query_norm = nn.Identity() if norm is None else norm.build(self.heads, self.head_dim)
        self.key_norm = nn.Identity() if norm is None else norm.build(self.kv_heads, self.head_dim)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H·E] -> [B, H, T, E]."""
        return x.view(*x.shape[:2], x.shape[2] // self.head_dim, self.head_dim).transpose(1, 2)

    def heads_of(self, x: Tensor, project: nn.Module, context: Context) -> Tensor:
        """A projection as heads of padded rows, [B, H, T, E], of x [B, T, D] or as the pass holds it."""
        return self.split(context.layout.spread(project(x)))

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, view: View, bias: Bias | None, context: Context, name: str
    ) -> Tensor:
        """Kernel and output projection: [B, H, T, E] -> [B, T, D]."""
        return self.join(self.mix(query, key, value, view, bias, context, name), context)

    def mix(
        self, query: Tensor, key: Tensor, value: Tensor, view: View, bias: Bias | None, context: Context, name: str
    ) -> Tensor:
        """The kernel alone: [B, H, T, E] -> [B, H, T, E]."""
        dropout = self.dropout if self.training else 0.0
        see = partial(_see, context.tap, name)
        return self.kernel.attend(query, key, value, view, Scoring(self.scale, self.soft_cap, bias, dropout, see))

    def join(self, heads: Tensor, context: Context) -> Tensor:
        """The output projection: [B, H, T, E] -> [B, T, H·E] -> [B, T, D], the last two as the pass holds them."""
        out: Tensor = self.out(context.layout.pack(heads.transpose(1, 2).flatten(2)))
        return out


class SelfAttention(Attention):
    """Queries, keys and values from the same tokens, with positions, cache, memory and keys that stand for blocks."""

    def __init__(
        self,
        config: AttentionConfig,
        d_model: int,
        context_length: int,
        relation: Relation,
        summaries: NoSummaries,
    ) -> None:
        super().__init__(config, d_model, context_length)
        self.relation, self.summaries = relation, summaries

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        context, geometry = run.context, run.geometry
        seen = self.summaries(context.memory.extend(run.layer, x), run.shares)  # [B, M+T+G, D]
        query = geometry.rotate_query(self.query_norm(self.heads_of(x, self.query, context)))
        key = geometry.rotate_key(self.key_norm(self.heads_of(seen, self.key, context)))
        key, value = context.cache.extend(run.layer, key, self.heads_of(seen, self.value, context))
        query, bias = self.relation(query, geometry, self.scale)
        return self.attend(query, key, value, run.self_view, bias, context, f"{run.layer}.self")


class CrossAttention(Attention):
    """Queries from the decoder, keys and values from the encoder's output, without positions."""

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        context = run.context
        key, value = context.cache.cross(run.layer, partial(self.keys_and_values, context.source.hidden))
        query = self.query_norm(self.heads_of(x, self.query, context))
        return self.attend(query, key, value, run.cross_view, None, context, f"{run.layer}.cross")

    def keys_and_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> two of [B, K, S, E]."""
        return self.key_norm(self.split(self.key(source))), self.split(self.value(source))


class ClippedLinear(nn.Linear):
    """A projection whose results are held within ±clip."""

    def __init__(self, d_in: int, d_out: int, *, bias: bool, clip: float) -> None:
        super().__init__(d_in, d_out, bias=bias)
        self.clip = clip

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(-self.clip, self.clip)


def _see(tap: Tap, name: str, what: str, value: Tensor) -> None:
    tap.see(f"{name}.{what}", value)


def projection(config: AttentionConfig, d_in: int, d_out: int) -> nn.Linear:
    """A projection to queries, keys or values."""
    if config.clip is None:
        return nn.Linear(d_in, d_out, bias=config.qkv_bias)
    return ClippedLinear(d_in, d_out, bias=config.qkv_bias, clip=config.clip)
