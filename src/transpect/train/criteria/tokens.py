"""Cross-entropy of each labelled token: what most objectives are trained with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, final

from transpect.core.context import NO_MEMORY, Memory
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.train.criteria.base import Criterion, Loss, Setting, Sums
from transpect.train.loss import check_head, evaluation_loss, training_loss


@final
@dataclass(frozen=True)
class CrossEntropy(Loss, kind="cross_entropy"):
    """−ln p(label), smoothed by ``train.label_smoothing`` in training."""

    def build(self, setting: Setting) -> TokenCrossEntropy:
        check_head(setting.model)
        return TokenCrossEntropy(setting.recipe.train.label_smoothing)


@final
@dataclass(frozen=True)
class TokenCrossEntropy(Criterion):
    """Σ over labels of −ln p(label).

    Attributes:
        smoothing: ε of `summed_loss`, in training only.
        scale: see `Criterion.scaled`.
    """

    by_rows: ClassVar[bool] = True
    smoothing: float = 0.0
    scale: float = 1.0

    def scaled(self, scale: float) -> TokenCrossEntropy:
        return replace(self, scale=scale)

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        return Sums((training_loss(model, batch, self.smoothing, memory, self.scale),))

    def evaluation(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        return Sums((evaluation_loss(model, batch, memory),))


CROSS_ENTROPY: Final = TokenCrossEntropy()
"""Without smoothing."""
