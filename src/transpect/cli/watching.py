"""A kernel that shows what it is given, for commands that look into a model.

Axes: B batch, T query, S key, H heads, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from transpect.core import Transformer
from transpect.core.attention import Attention
from transpect.core.kernels import Kernel, Naive
from transpect.core.kernels.base import See
from transpect.core.view import View

__all__ = ["Watched", "watched"]


@dataclass(frozen=True)
class Watched(Kernel):
    """The naive kernel; a tap also sees ``query_heads`` [B, H, T, E], ``key_heads`` and ``value_heads`` [B, K, S, E]
    and, where positions have one, ``position_bias`` [B|1, H, T, S]."""

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        view: View,
        *,
        bias: Tensor | None,
        scale: float,
        soft_cap: float | None,
        dropout: float,
        see: See,
    ) -> Tensor:
        for name, tensor in (("query_heads", query), ("key_heads", key), ("value_heads", value)):
            see(name, tensor)
        if bias is not None:
            see("position_bias", bias)
        return Naive().attend(
            query, key, value, view, bias=bias, scale=scale, soft_cap=soft_cap, dropout=dropout, see=see
        )


@contextmanager
def watched(model: Transformer) -> Iterator[None]:
    """Let every attention of ``model`` run on `Watched` for a while."""
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    kernels = [layer.kernel for layer in layers]
    try:
        for layer in layers:
            layer.kernel = Watched()
        yield
    finally:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = kernel
