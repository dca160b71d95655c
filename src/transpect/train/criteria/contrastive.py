"""InfoNCE: which of the texts of a batch belongs to this one (van den Oord et al. 2018, §2.3; Gao et al. 2021, §2).

Axes: B pairs, M candidates, D model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.checks import above
from transpect.base.errors import ConfigError
from transpect.core.context import NO_MEMORY, Memory
from transpect.core.heads import Pooled
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.train.criteria.base import Criterion, Loss, Setting, Sums, check_loss_head


@final
@dataclass(frozen=True)
class ContrastiveLoss(Loss, kind="contrastive"):
    """−ln softmax(cos(a_i, c_j) / τ) at j = i, where a_i are anchors and c_j the candidates of the batch.

    Candidates are the positives of all pairs of the micro-batch and then their hard negatives. One whose tokens are
    those of the anchor's own positive is no negative to it, and is left out. A larger ``batch_size`` is a harder task;
    ``accumulate`` changes nothing of it.

    Attributes:
        temperature: τ.
        both_ways: half of the loss is to find the anchor of a positive among the anchors.
    """

    temperature: float = 0.05
    both_ways: bool = False

    def __post_init__(self) -> None:
        above("temperature", self.temperature, 0)

    def build(self, setting: Setting) -> Contrast:
        check_loss_head(setting.model, self.kind, Pooled)
        recipe = setting.recipe
        if recipe.train.batch_size == 1 and not getattr(recipe.objective, "negatives", 0):
            raise ConfigError(
                "a pair is told from the other pairs of its batch, and there is none in a batch of one",
                value="train.batch_size: 1",
                remedy="Raise train.batch_size, or read hard negatives: data.objective.negatives.",
            )
        return Contrast(self.temperature, self.both_ways)


@final
@dataclass(frozen=True)
class Contrast(Criterion):
    """Σ over pairs of their InfoNCE.

    Attributes:
        temperature: τ.
        both_ways: see `ContrastiveLoss`.
    """

    temperature: float = 0.05
    both_ways: bool = False

    unit: ClassVar[str] = "pairs"

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        anchors, candidates, same = self._embedded(model, batch)
        scores = self._scores(anchors, candidates, same)  # [B, M]
        loss = functional.cross_entropy(scores, batch.labels, reduction="sum")
        if self.both_ways:
            back = self._scores(candidates[: len(anchors)], anchors, _same(batch.ids[: len(anchors)]))
            loss = (loss + functional.cross_entropy(back, batch.labels, reduction="sum")) / 2
        return Sums((loss,), {"accuracy": (scores.detach().argmax(-1) == batch.labels).sum()})

    def _embedded(self, model: Transformer, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Anchors [B, D], candidates [M, D], and which candidates are equal texts [M, M].

        This is the place for candidates of other processes: gathered behind those of this one, they change no label.
        """
        vectors: Tensor = model(batch.ids, tags=batch.tags, token_types=batch.token_types)
        vectors = functional.normalize(vectors.float(), dim=-1)
        n = batch.n_labels
        return vectors[:n], vectors[n:], _same(batch.ids[n:])

    def _scores(self, anchors: Tensor, candidates: Tensor, same: Tensor) -> Tensor:
        """[B, M]: cos / τ; −∞ at a candidate that is another copy of the anchor's own."""
        n = len(anchors)
        copies = same[:n] & ~torch.eye(n, len(candidates), dtype=torch.bool, device=same.device)
        scores: Tensor = anchors @ candidates.T / self.temperature
        return scores.masked_fill(copies, -torch.inf)


def _same(ids: Tensor) -> Tensor:
    """Which rows are equal, [M, T] -> [M, M]."""
    _, kind = torch.unique(ids, dim=0, return_inverse=True)
    same: Tensor = kind[:, None] == kind
    return same
