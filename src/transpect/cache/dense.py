"""All keys and values of a batch in one growing buffer a layer.

Axes: B batch, T new, S all, K key-value heads, E head.
"""

from __future__ import annotations

from torch import Tensor

from transpect.cache.buffers import Buffered


class DenseCache(Buffered):
    """Keys and values as they are."""

    def __init__(self) -> None:
        super().__init__(n_buffers=2)

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add one layer's new keys and values [B, K, T, E]; give all of them [B, K, S, E]."""
        keys, values = self._buffers
        start = self.length - self._pending
        return keys.append(layer, key, start), values.append(layer, value, start)

    def fork(self) -> DenseCache:
        """An independent copy."""
        return self._buffers_to(DenseCache())
