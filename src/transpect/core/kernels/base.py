"""What a way to compute attention is.

Axes: B batch, T query, S key, H heads, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from transpect.base.codec import Variant
from transpect.core.view import View

See = Callable[[str, Tensor], None]


@dataclass(frozen=True)
class Demands:
    """What an attention layer will ask of its kernel; a kernel refuses at build time what it can't do."""

    soft_cap: float | None


class Kernel(Variant):
    """One way to compute softmax(scale · q kᵀ + bias, hidden keys left out) v."""

    def check(self, demands: Demands) -> None:
        """Raise `ConfigError` that names what this kernel can't do."""

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
        """Attend.

        Args:
            query: [B, H, T, E].
            key: [B, K, S, E]; query head h uses key-value head h // (H/K).
            value: [B, K, S, E].
            view: who sees whom.
            bias: [B|1, H, T, S] added to the scaled scores.
            scale: factor on q·k.
            soft_cap: c in c·tanh(score / c), applied before the bias.
            dropout: probability that a weight is dropped; 0 outside training.
            see: receives ``attention_weights`` [B, H, T, S] if the kernel has them.

        Returns:
            [B, H, T, E]; exactly 0 for a query that sees nothing.
        """
        raise AssertionError("abstract")
