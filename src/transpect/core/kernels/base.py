"""What a way to compute attention is.

Axes: B batch, T query, S key, H heads, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.core.bias import Bias
from transpect.core.positions import Scores
from transpect.core.view import View
from transpect.core.visibility import Visibility

See = Callable[[str, Tensor], None]


def unseen(name: str, value: Tensor) -> None:
    """Nobody looks."""


@dataclass(frozen=True)
class Demands:
    """What an attention layer will ask of its kernel; a kernel refuses at build time what it can't do.

    Attributes:
        visibility: who sees whom.
        scores: what positions add to the scores.
        soft_cap: c in c·tanh(score / c), or None.
        dropout: probability that a weight is dropped in training.
    """

    visibility: Visibility
    scores: Scores
    soft_cap: float | None
    dropout: float


@dataclass(frozen=True)
class Sizes:
    """What a kernel with weights of its own needs to know: H, K, E and the longest sequence."""

    n_heads: int
    kv_heads: int
    head_dim: int
    context_length: int


@dataclass(frozen=True)
class Scoring:
    """What becomes of q·k: the score is soft_cap·tanh(scale·q·k / soft_cap) + bias.

    Attributes:
        scale: factor on q·k.
        soft_cap: None caps nothing.
        bias: None adds nothing.
        dropout: probability that a weight is dropped; 0 outside training.
        see: receives ``attention_weights`` [B, H, T, S] if the kernel has them.
    """

    scale: float
    soft_cap: float | None = None
    bias: Bias | None = None
    dropout: float = 0.0
    see: See = unseen


class Way(Protocol):
    """A kernel that has been built for one layer."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        """Attend.

        Args:
            query: [B, H, T, E].
            key: [B, K, S, E]; query head h uses key-value head h // (H/K).
            value: [B, K, S, E].
            view: who sees whom.
            scoring: how a query scores a key.

        Returns:
            [B, H, T, E]; exactly 0 for a query that sees nothing.
        """


class Kernel(Variant):
    """One way to compute softmax(scale · q kᵀ + bias, hidden keys left out) v, or what stands in for it.

    Attributes:
        scales: whether it has q·k to scale.
    """

    scales: ClassVar[bool] = True

    @property
    def made_for(self) -> str | None:
        """The type of device that it is there for, if it is there for one; elsewhere it serves to be looked into."""
        return None

    def check(self, demands: Demands) -> None:
        """Raise `ConfigError` that names what this kernel can't do."""

    def build(self, sizes: Sizes) -> Way:
        """The kernel for one layer; a module where it has weights."""
        raise AssertionError("abstract")

    def numbers(self, sizes: Sizes) -> int:
        """How many numbers the largest tensor of its own holds."""
        return 0


class Exact(Kernel):
    """A kernel that computes attention itself and has no weights, so that it is its own way."""

    def build(self, sizes: Sizes) -> Way:
        return self

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        """As `Way.attend`."""
        raise AssertionError("abstract")


def refused(kernel: Kernel, why: str, value: object, remedy: str) -> ConfigError:
    """The error of a kernel that can't do something."""
    return ConfigError(f"the kernel `{kernel.kind}` {why}", value=value, remedy=remedy)
