"""Keys and values of the last columns: generation without end in bounded memory.

Axes: B batch, T new, S remembered and new, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from transpect.cache.dense import unpadded
from transpect.cache.recent import Recent, alike
from transpect.core.context import NO_CARRY, Carry


class SlidingCache(Recent):
    """What `SegmentMemory` of the same limit gives, with keys and values kept instead of computed anew in each pass.

    For a model that can go on with a memory (see `check_memory`). Fed token by token, with M columns, it is equal to
    one pass under `Window` (M + 1). For inference: gradients do not flow through it.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Give remembered and new keys and values together [B, K, S, E], and remember the last of them."""
        return self._joined(self._keys, layer, key), self._joined(self._values, layer, value)

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """As `extend`: what is remembered is here, so nothing else needs to be carried."""
        return *self.extend(layer, key, value), NO_CARRY

    def cross(self, layer: int, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of an encoder's output, which such a model has none of."""
        return compute()

    def compact(self) -> None:
        """Note where rows are alike again; padding goes by itself."""
        if self._tags is not None:
            self._tags = unpadded(self._tags)
        if isinstance(self._next, Tensor):
            self._next = alike(self._next)

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all."""
        if self._tags is not None:
            self._tags = self._tags.rows(rows)
        if isinstance(self._next, Tensor):
            self._next = self._next[rows]
        for store in (self._keys, self._values):
            for layer, held in store.items():
                store[layer] = held[rows]

    def _joined(self, store: dict[int, Tensor], layer: int, new: Tensor) -> Tensor:
        together = torch.cat([store[layer], new], 2) if layer in store else new
        kept = min(self.limit, together.shape[2])
        # a view would keep a whole prompt in memory
        store[layer] = together[:, :, together.shape[2] - kept :].clone()
        return together
