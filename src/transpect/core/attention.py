"""Multi-head attention: MHA, GQA and MQA, self and cross.

Axes: B batch, T query, S key, D model, H heads, K key-value heads, E head.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from transpect.base.checks import above, at_least, share
from transpect.base.errors import ConfigError
from transpect.core.context import Context
from transpect.core.kernels import Demands, Kernel, Sdpa
from transpect.core.norms import Norm
from transpect.core.positions import Geometry, Relation
from transpect.core.visibility import View


@dataclass(frozen=True)
class Pass:
    """What the layers of one stack share in one forward pass."""

    context: Context
    self_view: View
    cross_view: View
    geometry: Geometry


@dataclass(frozen=True)
class AttentionConfig:
    """head_h = softmax(q_h k_gᵀ · scale + bias) v_g; output = concat(heads) W_o (Vaswani et al. 2017, §3.2).

    Attributes:
        n_heads: H.
        n_kv_heads: K, which divides H; None is H (MHA), 1 is MQA, between is GQA.
        head_dim: E; None is D/H.
        qkv_bias: biases on the query, key and value projections.
        out_bias: bias on the output projection.
        qk_norm: a norm over E on queries and keys before positions turn them (Qwen3, Gemma 3).
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
    qk_norm: Norm | None = None
    soft_cap: float | None = None
    scale: float | None = None
    dropout: float = 0.0
    kernel: Kernel = field(default_factory=Sdpa)

    def __post_init__(self) -> None:
        at_least("n_heads", self.n_heads, 1)
        at_least("head_dim", self.head_dim, 1)
        above("soft_cap", self.soft_cap, 0)
        above("scale", self.scale, 0)
        share("dropout", self.dropout)
        if self.kv_heads < 1 or self.n_heads % self.kv_heads:
            raise ConfigError(
                "n_heads must be a multiple of n_kv_heads",
                value=f"{self.n_heads} and {self.n_kv_heads}",
                remedy="Each key-value head serves the same number of query heads.",
            )
        self.kernel.check(Demands(soft_cap=self.soft_cap))

    @property
    def kv_heads(self) -> int:
        """K."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

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


class _Attention(nn.Module):
    """Projections, kernel and output; a child says where queries and keys come from."""

    def __init__(self, config: AttentionConfig, d_model: int, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads, self.head_dim = config.n_heads, config.kv_heads, config.width(d_model)
        self.scale = self.head_dim**-0.5 if config.scale is None else config.scale
        self.soft_cap, self.dropout, self.kernel = config.soft_cap, config.dropout, config.kernel
        kv_dim = self.kv_heads * self.head_dim
        self.query = nn.Linear(d_model, self.heads * self.head_dim, bias=config.qkv_bias)
        self.key = nn.Linear(d_model, kv_dim, bias=config.qkv_bias)
        self.value = nn.Linear(d_model, kv_dim, bias=config.qkv_bias)
        self.out = nn.Linear(self.heads * self.head_dim, d_model, bias=config.out_bias)
        self.query_norm = nn.Identity() if config.qk_norm is None else config.qk_norm.build(self.head_dim)
        self.key_norm = nn.Identity() if config.qk_norm is None else config.qk_norm.build(self.head_dim)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H·E] -> [B, H, T, E]."""
        return x.view(*x.shape[:2], x.shape[2] // self.head_dim, self.head_dim).transpose(1, 2)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, view: View, bias: Tensor | None, context: Context, name: str
    ) -> Tensor:
        """Kernel and output projection: [B, H, T, E] -> [B, T, D]."""
        heads = self.kernel.attend(
            query,
            key,
            value,
            view,
            bias=bias,
            scale=self.scale,
            soft_cap=self.soft_cap,
            dropout=self.dropout if self.training else 0.0,
            see=lambda what, tensor: context.tap.see(f"{name}.{what}", tensor),
        )
        out: Tensor = self.out(heads.transpose(1, 2).flatten(2))  # [B, H, T, E] -> [B, T, H·E] -> [B, T, D]
        return out


class SelfAttention(_Attention):
    """Queries, keys and values from the same tokens, with positions, cache and memory."""

    def __init__(self, config: AttentionConfig, d_model: int, layer: int, relation: Relation) -> None:
        super().__init__(config, d_model, layer)
        self.relation = relation

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        context, geometry = run.context, run.geometry
        seen = context.memory.extend(self.layer, x)  # [B, M+T, D]
        query = geometry.rotate_query(self.query_norm(self.split(self.query(x))))
        key = geometry.rotate_key(self.key_norm(self.split(self.key(seen))))
        key, value = context.cache.extend(self.layer, key, self.split(self.value(seen)))
        query, bias = self.relation(query, geometry, self.scale)
        return self.attend(query, key, value, run.self_view, bias, context, f"{self.layer}.self")


class CrossAttention(_Attention):
    """Queries from the decoder, keys and values from the encoder's output, without positions."""

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        context = run.context
        key, value = context.cache.cross(self.layer, partial(self.keys_and_values, context.source.hidden))
        query = self.query_norm(self.split(self.query(x)))
        return self.attend(query, key, value, run.cross_view, None, context, f"{self.layer}.cross")

    def keys_and_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> two of [B, K, S, E]."""
        return self.key_norm(self.split(self.key(source))), self.split(self.value(source))
