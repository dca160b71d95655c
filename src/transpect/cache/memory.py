"""Transformer-XL's memory: each layer's inputs of earlier segments, without their gradients (Dai et al. 2019, §3.2).

Axes: B batch, T new, M remembered, D model.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cache.recent import Recent
from transpect.core.config import ModelConfig
from transpect.core.tags import Tags

TAGS = ("position", "segment", "prefix", "is_global", "horizon")


class SegmentMemory(Recent):
    """Remembers the last ``length`` columns of every layer's input from pass to pass.

    A memory as long as the past makes segment by segment equal to one pass over everything. With M columns and segments
    of T tokens, token i sees the keys j with ⌊i/T⌋·T − M ≤ j ≤ i in every layer, so it is equal to one pass under that
    rule: `Causal` and `Blocks` (T, M/T) where T divides M, and `Window` (M + 1) where T is 1.

    Args:
        limit: how many columns to keep, M.
    """

    axis = 1

    def __init__(self, limit: int) -> None:
        super().__init__(limit, n_stores=1)

    def extend(self, layer: int, hidden: Tensor) -> Tensor:
        """Give remembered and new inputs together [B, M+T, D], and remember the last of them, detached."""
        together, last = self._joined(0, layer, hidden)
        self._stores[0][layer] = last.detach()
        return together

    def fork(self) -> SegmentMemory:
        """An independent copy."""
        return self._copy_to(SegmentMemory(self.limit))

    def tensors(self) -> dict[str, Tensor]:
        """All that is remembered, in storage of its own, by names without a meaning but for `of`."""
        named = {str(layer): hidden for layer, hidden in self._stores[0].items()}
        numbers = {"limit": self.limit, "fell": int(self._fell)}
        if self._tags is not None:
            named |= {tag: getattr(self._tags, tag) for tag in TAGS}
            numbers |= {} if self._tags.start is None else {"start": self._tags.start}
        if isinstance(self._next, Tensor):
            named["next"] = self._next
        elif self._next is not None:
            numbers["next"] = self._next
        named |= {name: torch.tensor(number) for name, number in numbers.items()}
        return {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in named.items()}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], device: torch.device | str) -> Self:
        """The memory whose `tensors` these are, on a device."""
        memory = cls(int(tensors["limit"]))
        after, start = tensors.get("next"), tensors.get("start")
        if after is None:
            memory._next = None
        else:
            memory._next = after.to(device) if after.ndim else int(after)
        if "position" in tensors:
            position, segment, prefix, is_global, horizon = (tensors[tag].to(device) for tag in TAGS)
            memory._tags = Tags(position, segment, prefix, is_global, horizon, None if start is None else int(start))
        memory._fell = bool(tensors.get("fell", True))  # one that is older than this entry does not know
        memory._stores[0] = {int(name): tensor.to(device) for name, tensor in tensors.items() if name.isdigit()}
        return memory


def check_memory(config: ModelConfig) -> None:
    """Refuse a model for which segment by segment with a memory is not what one pass over everything would be.

    Raises:
        ConfigError: not a decoder, tokens that see later ones, positions that end with the context, or positions or
            visibility that depend on the length of the whole.
    """
    stack = config.last
    if config.kind != "decoder":
        raise ConfigError(
            "a memory of earlier segments is for a decoder alone",
            value=config.kind,
            remedy="An encoder and what looks at it read a whole text at once.",
        )
    if stack.looks_ahead(prefix=False):
        raise ConfigError(
            "with a memory of earlier segments no token may see a later one, which comes only with the next segment",
            value=f"visibility {stack.visibility.kind}",
            remedy="Choose causal or window.",
        )
    bounded = [kind.positions.kind for kind in stack.kinds if kind.positions.bounded]
    if bounded:
        raise ConfigError(
            "with a memory positions go on from segment to segment, beyond the context where these positions end",
            value=f"positions {bounded[0]}",
            remedy="Choose transformer_xl, rope, alibi, kerple or t5.",
        )
    if stack.reads_length:
        raise ConfigError(
            "with a memory nobody knows how long the whole will be, and these positions or visibility depend on it",
            value=f"positions {stack.positions.kind}, visibility {stack.visibility.kind}",
            remedy="Choose others, e.g. the RoPE scaling yarn.",
        )
