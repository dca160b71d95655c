"""InfoNCE: which of the texts of a batch belongs to this one (van den Oord et al. 2018, §2.3; Gao et al. 2021, §2).

Axes: B pairs of a micro-batch, b pairs of this process, M candidates, D model.
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
from transpect.train.parallel.world import ALONE, World


@final
@dataclass(frozen=True)
class ContrastiveLoss(Loss, kind="contrastive"):
    """−ln softmax(cos(a_i, c_j) / τ) at j = i, where a_i are anchors and c_j the candidates of the batch.

    Candidates are the positives of all pairs of the micro-batch and then their hard negatives. One whose tokens are
    those of the anchor's own positive is no negative to it, and is left out. A larger ``batch_size`` is a harder task;
    ``accumulate`` changes nothing of it. Processes that share out a micro-batch show each other their candidates.

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
        return Contrast(self.temperature, self.both_ways, setting.world)


@final
@dataclass(frozen=True)
class Contrast(Criterion):
    """Σ over pairs of their InfoNCE.

    Attributes:
        temperature: τ.
        both_ways: see `ContrastiveLoss`.
        world: the processes that share out micro-batches, in training.
    """

    temperature: float = 0.05
    both_ways: bool = False
    world: World = ALONE

    unit: ClassVar[str] = "pairs"

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        return self._sums(model, batch, self.world)

    def evaluation(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        return self._sums(model, batch, ALONE)  # whole batches are dealt out

    def _sums(self, model: Transformer, batch: Batch, world: World) -> Sums:
        own = batch.labels  # [b], which of the B pairs of the micro-batch are read here
        vectors: Tensor = model(batch.ids, tags=batch.tags, token_types=batch.token_types)
        vectors = functional.normalize(vectors.float(), dim=-1)
        anchors, *others = torch.split(vectors, len(own))
        texts, *other_texts = torch.split(batch.ids, len(own))
        candidates = torch.cat([world.side_by_side(some) for some in others])  # [M, D]
        same = _same(torch.cat([world.side_by_side(some) for some in other_texts]))  # [M, M]
        scores = self._scores(anchors, candidates, own, same)  # [b, M]
        loss = functional.cross_entropy(scores, own, reduction="sum")
        if self.both_ways:
            back = self._scores(others[0], world.side_by_side(anchors), own, _same(world.side_by_side(texts)))
            loss = (loss + functional.cross_entropy(back, own, reduction="sum")) / 2
        return Sums((loss,), {"accuracy": (scores.detach().argmax(-1) == own).sum()})

    def _scores(self, vectors: Tensor, candidates: Tensor, own: Tensor, same: Tensor) -> Tensor:
        """[b, M]: cos / τ; −∞ at a candidate that is another copy of a vector's own, which is candidate ``own``."""
        copies = same[own] & (torch.arange(len(candidates), device=own.device) != own[:, None])
        scores: Tensor = vectors @ candidates.T / self.temperature
        return scores.masked_fill(copies, -torch.inf)


def _same(ids: Tensor) -> Tensor:
    """Which rows are equal, [M, T] -> [M, M]."""
    _, kind = torch.unique(ids, dim=0, return_inverse=True)
    same: Tensor = kind[:, None] == kind
    return same
