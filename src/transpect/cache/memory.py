"""Transformer-XL's memory: each layer's inputs of earlier segments, without their gradients (Dai et al. 2019, §3.2).

Axes: B batch, T new, M remembered, D model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transpect.base.checks import at_least
from transpect.core.context import Tags


class SegmentMemory:
    """Remembers the last ``length`` columns of every layer's input from pass to pass.

    A memory as long as the past makes segment by segment equal to one pass over everything.

    Args:
        limit: how many columns to keep, M.
    """

    def __init__(self, limit: int) -> None:
        at_least("SegmentMemory.limit", limit, 0)
        self.limit = limit
        self._next: Tensor | int = 0
        self._tags: Tags | None = None
        self._hidden: dict[int, Tensor] = {}

    @property
    def length(self) -> int:
        """How many columns are remembered."""
        return 0 if self._tags is None else self._tags.shape[1]

    @property
    def next_position(self) -> Tensor | int:
        """The position after the last real token, remembered or not."""
        return self._next

    def admit(self, tags: Tags) -> Tags:
        """Give the tags of remembered and new tokens together, and remember the last of them."""
        together = tags if self._tags is None else self._tags.join(tags)
        # a row may bring nothing but padding, and its last real token may no longer be remembered
        fresh = tags.after()
        self._next = fresh if isinstance(fresh, int) else torch.maximum(fresh, fresh * 0 + self._next)
        kept = min(self.limit, together.shape[1])
        self._tags = together.columns(slice(together.shape[1] - kept, None))
        return together

    def extend(self, layer: int, hidden: Tensor) -> Tensor:
        """Give remembered and new inputs together [B, M+T, D], and remember the last of them, detached."""
        together = torch.cat([self._hidden[layer], hidden], 1) if layer in self._hidden else hidden
        self._hidden[layer] = together[:, together.shape[1] - min(self.limit, together.shape[1]) :].detach()
        return together
