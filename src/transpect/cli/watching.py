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
from transpect.core.kernels import Exact, Naive, Scoring
from transpect.core.view import View

__all__ = ["Watched", "watched"]


@dataclass(frozen=True)
class Watched(Exact):
    """The naive kernel; a tap also sees ``query_heads`` [B, H, T, E], ``key_heads`` and ``value_heads`` [B, K, S, E]
    and, where positions have one, ``position_bias`` [B|1, H, T, S]."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        for name, tensor in (("query_heads", query), ("key_heads", key), ("value_heads", value)):
            scoring.see(name, tensor)
        if scoring.bias is not None:
            scoring.see("position_bias", scoring.bias.whole)
        return Naive().attend(query, key, value, view, scoring)


@contextmanager
def watched(model: Transformer) -> Iterator[None]:
    """Let every softmax attention of ``model`` run on `Watched` for a while."""
    attentions = (module for module in model.modules() if isinstance(module, Attention))
    layers = [module for module in attentions if isinstance(module.kernel, Exact)]
    kernels = [layer.kernel for layer in layers]
    try:
        for layer in layers:
            layer.kernel = Watched()
        yield
    finally:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = kernel
