"""Keys and values in eight bits a number.

Axes: B batch, T new, S all, K key-value heads, E head, G groups of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.base.errors import ConfigError
from transpect.cache.buffers import Buffered

LEVELS = 255
"""The largest code."""

ROUNDED = 1 / 250
"""More than bfloat16 takes from a number when it is rounded."""


@dataclass(frozen=True)
class Codes:
    """x ≈ low + step · code, of each group of a token's numbers in a head.

    Attributes:
        code: [B, K, T, E] uint8.
        low, step: [B, K, T, G] bfloat16, rounded so that every number of a group lies within low … low + 255 · step.
    """

    code: Tensor
    low: Tensor
    step: Tensor

    @classmethod
    def of(cls, x: Tensor, group: int) -> Codes:
        """Of [B, K, T, E]. Each number that `restored` gives is off by at most half a step, where

            step ≤ 1.008 · (high − low + |low| / 125) / 255

        for the lowest and highest number of its group.
        """
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        grouped = wide.reshape(*x.shape[:-1], x.shape[-1] // group, group)  # [B, K, T, G, g]
        lowest, highest = grouped.amin(-1), grouped.amax(-1)
        low = (lowest - lowest.abs() * ROUNDED).bfloat16()
        step = ((highest - low) / LEVELS * (1 + ROUNDED)).clamp(min=torch.finfo(torch.bfloat16).tiny).bfloat16()
        code = ((grouped - low[..., None]) / step[..., None]).round().clamp(0, LEVELS)
        return cls(code.to(torch.uint8).flatten(-2), low, step)

    def restored(self, dtype: torch.dtype) -> Tensor:
        """[B, K, T, E]."""
        wide = torch.promote_types(dtype, torch.float32)
        grouped = self.code.reshape(*self.low.shape, -1).to(wide)
        restored = self.low.to(wide)[..., None] + grouped * self.step.to(wide)[..., None]
        return restored.flatten(-2).to(dtype)


class Int8Cache(Buffered):
    """As `DenseCache`, with 1 + 4/g bytes a number: one for its code, and two bfloat16 for each group of g numbers.

    Groups are of one token and one head, so what a token gives depends on nothing but itself: not on how a prompt is
    cut, nor on its neighbours, and columns may be taken back. On SmolLM2-135M (616 tokens of English) the divergence
    from full keys and values is 1.3e-4 nats a token with groups of 16, 3.3e-4 of 32, 4.9e-4 of a whole head, and 1.4e-3
    of a whole head without `low`. One scale a channel for all tokens' keys (as in KIVI, Liu et al. 2024, §3) would give
    1.7e-4 and need columns to be held back until a group of them is full, so keys are not kept by channel.

    Args:
        group: g, which divides E.
    """

    def __init__(self, group: int = 16) -> None:
        within("Int8Cache.group", group)
        super().__init__(n_buffers=6)
        self.group = group

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add one layer's new keys and values [B, K, T, E]; give all of them [B, K, S, E], as they are after rounding.

        Raises:
            ConfigError: groups that do not divide a head.
        """
        return self._rounded(0, layer, key), self._rounded(3, layer, value)

    def fork(self) -> Int8Cache:
        """An independent copy."""
        return self._buffers_to(Int8Cache(self.group))

    def _rounded(self, first: int, layer: int, new: Tensor) -> Tensor:
        check_group(self.group, new.shape[-1])
        codes = Codes.of(new, self.group)
        start = self.length - self._pending
        parts = zip(self._buffers[first : first + 3], (codes.code, codes.low, codes.step), strict=True)
        return Codes(*(buffers.append(layer, part, start) for buffers, part in parts)).restored(new.dtype)


def check_group(group: int, head_dim: int) -> None:
    """Refuse groups that do not divide a head.

    Raises:
        ConfigError: they don't.
    """
    if head_dim % group:
        raise ConfigError(
            "the numbers of a head must fall into whole groups",
            value=f"head_dim={head_dim}, group={group}",
            remedy="Choose a group that divides it.",
        )
