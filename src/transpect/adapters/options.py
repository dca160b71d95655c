"""What an adapter is, as options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from transpect.adapters.linear import DoraLinear, LoraLinear, LowRankLinear
from transpect.base.checks import above, share, within
from transpect.base.codec import Variant


@dataclass(frozen=True)
class Adapter(Variant):
    """A kind of adapter with its options, which LoRA and DoRA share.

    Attributes:
        rank: r, of the change of each weight.
        alpha: the change counts alpha/r.
        dropout: on what A reads, in training.
        rslora: the change counts alpha/√r, so that it doesn't shrink with a large rank (Kalajdzievski 2023, "rsLoRA").
        targets: patterns of the linear layers that get one (`transpect.base.patterns`); none is all of attention and
            feed-forward, experts apart.
        modules_to_save: patterns of other modules that are trained as a whole and saved beside, such as the table of
            tokens (``token``); a head that tells classes always is.
    """

    makes: ClassVar[type[LowRankLinear]]

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    rslora: bool = False
    targets: tuple[str, ...] = ()
    modules_to_save: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        within("rank", self.rank)
        above("alpha", self.alpha, 0)
        share("dropout", self.dropout)

    @property
    def scale(self) -> float:
        """What the change counts."""
        return self.alpha / (self.rank**0.5 if self.rslora else self.rank)

    def build(self, base: nn.Module) -> LowRankLinear:
        """The module that takes the place of a linear layer, its matrices not filled yet."""
        return self.makes(base, self.rank, self.scale, self.dropout)


@dataclass(frozen=True)
class Lora(Adapter, kind="lora"):
    """y = W x + b + s · B A drop(x) (Hu et al. 2021, "LoRA", §4.1). Options as in `Adapter`."""

    makes = LoraLinear


@dataclass(frozen=True)
class Dora(Adapter, kind="dora"):
    """y = m ⊙ (W x + s · B A drop(x)) / ‖W + s·B A‖ + b, norms of rows (Liu et al. 2024, "DoRA", §4.1 and §4.3)."""

    makes = DoraLinear
