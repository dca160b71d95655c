"""Keys and values of the last columns: generation without end in bounded memory.

Axes: B batch, T new, S remembered and new, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from transpect.cache.recent import Recent
from transpect.core.context import NO_CARRY, Carry


class SlidingCache(Recent):
    """What `SegmentMemory` of the same limit gives, with keys and values kept instead of computed anew in each pass.

    For a model that can go on with a memory (see `check_memory`). Fed token by token, with M columns, it is equal to
    one pass under `Window` (M + 1). For inference: gradients do not flow through it.
    """

    axis = 2

    def __init__(self, limit: int) -> None:
        super().__init__(limit, n_stores=2)

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Give remembered and new keys and values together [B, K, S, E], and remember the last of them."""
        return self._remembered(0, layer, key), self._remembered(1, layer, value)

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """As `extend`: what is remembered is here, so nothing else needs to be carried."""
        return *self.extend(layer, key, value), NO_CARRY

    def cross(self, layer: int, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of an encoder's output, which such a model has none of."""
        return compute()

    def fork(self) -> SlidingCache:
        """An independent copy."""
        return self._copy_to(SlidingCache(self.limit))

    def _remembered(self, which: int, layer: int, new: Tensor) -> Tensor:
        together, last = self._joined(which, layer, new)
        self._stores[which][layer] = last.clone()  # a view would keep a whole prompt in memory
        return together
