"""Keys and values of an encoder's output, which every kind of cache holds alike.

Axes: B batch, S source, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class SourceKeys:
    """For each layer the keys and values [B, K, S, E] of what its cross-attention looks at, computed once."""

    of_layer: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def get(self, layer: int, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """See `Cache.cross`."""
        if layer not in self.of_layer:
            self.of_layer[layer] = compute()
        return self.of_layer[layer]

    def rows(self, index: Tensor) -> SourceKeys:
        """Those of the rows ``index`` of the batch, in that order."""
        return SourceKeys({layer: (key[index], value[index]) for layer, (key, value) in self.of_layer.items()})

    def fork(self) -> SourceKeys:
        """An independent copy; what is computed is never written to, so it is shared."""
        return SourceKeys(dict(self.of_layer))
