"""Position-wise feed-forward branches and their activations.

Axes: B batch, T query, D model, F feed-forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from transpect.base.checks import share, within
from transpect.base.codec import Variant

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "relu2", "tanh"]


def relu_squared(x: Tensor) -> Tensor:
    """max(0, x)² (So et al. 2021, "Primer")."""
    return functional.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "relu2": relu_squared,
    "tanh": functional.tanh,
}


class FeedForward(Variant):
    """A feed-forward branch with its options."""

    @property
    def parts(self) -> int:
        """How many feed-forwards it is made of."""
        return 1

    def width(self, d_model: int) -> int:
        """F, of each of them."""
        raise AssertionError("abstract")

    def resolved(self, d_model: int) -> FeedForward:
        """The same with its widths spelled out for a model of width D."""
        raise AssertionError("abstract")

    def build(self, d_model: int) -> nn.Module:
        """The branch for a model of width D."""
        raise AssertionError("abstract")


@dataclass(frozen=True)
class Mlp(FeedForward, kind="mlp"):
    """down(act(up(x))) (Vaswani et al. 2017, §3.3).

    Attributes:
        d_ff: F; None is 4·D.
        dropout: on the activations between the two layers.
    """

    d_ff: int | None = None
    act: Activation = "gelu"
    bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        within("d_ff", self.d_ff)
        share("dropout", self.dropout)

    def width(self, d_model: int) -> int:
        """F."""
        return 4 * d_model if self.d_ff is None else self.d_ff

    def resolved(self, d_model: int) -> Mlp:
        return replace(self, d_ff=self.width(d_model))

    def build(self, d_model: int) -> nn.Module:
        return MlpModule(d_model, self.width(d_model), self)


@dataclass(frozen=True)
class Glu(FeedForward, kind="glu"):
    """down(act(gate(x)) ⊙ up(x)) (Shazeer 2020, "GLU variants").

    Attributes:
        d_ff: F; None is 8/3·D rounded up to a multiple of 32, as many parameters as an Mlp of 4·D.
        dropout: on the product.
    """

    d_ff: int | None = None
    act: Activation = "silu"
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        within("d_ff", self.d_ff)
        share("dropout", self.dropout)

    def width(self, d_model: int) -> int:
        """F."""
        return -(-8 * d_model // 96) * 32 if self.d_ff is None else self.d_ff

    def resolved(self, d_model: int) -> Glu:
        return replace(self, d_ff=self.width(d_model))

    def build(self, d_model: int) -> nn.Module:
        return GluModule(d_model, self.width(d_model), self)


class MlpModule(nn.Module):
    def __init__(self, d_model: int, d_ff: int, options: Mlp) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=options.bias)
        self.down = nn.Linear(d_ff, d_model, bias=options.bias)
        self.act = ACTIVATIONS[options.act]
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x: Tensor, *_: object) -> Tensor:
        out: Tensor = self.down(self.dropout(self.act(self.up(x))))  # [B, T, D] -> [B, T, F] -> [B, T, D]
        return out


class GluModule(nn.Module):
    def __init__(self, d_model: int, d_ff: int, options: Glu) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=options.bias)
        self.up = nn.Linear(d_model, d_ff, bias=options.bias)
        self.down = nn.Linear(d_ff, d_model, bias=options.bias)
        self.act = ACTIVATIONS[options.act]
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x: Tensor, *_: object) -> Tensor:
        out: Tensor = self.down(self.dropout(self.act(self.gate(x)) * self.up(x)))
        return out
