"""Cross-entropy of classes, of texts and of words, and how many of them are told right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from transpect.core.context import NO_MEMORY, Memory
from transpect.core.heads import SequenceClass, TokenClass
from transpect.core.model import Transformer
from transpect.data.batch import IGNORE, Batch
from transpect.train.criteria.base import Counts, Criterion, Loss, Setting, Sums, check_loss_head
from transpect.train.criteria.scores import accuracy, confusion, is_scheme, macro_f1, span_counts, span_f1
from transpect.train.loss import summed_loss


@final
@dataclass(frozen=True)
class ClassificationLoss(Loss, kind="classification"):
    """−ln p(class) of each text, smoothed by ``train.label_smoothing`` in training."""

    def build(self, setting: Setting) -> Classify:
        check_loss_head(setting.model, self.kind, SequenceClass)
        return Classify(setting.recipe.train.label_smoothing)


@final
@dataclass(frozen=True)
class TokenClassificationLoss(Loss, kind="token_classification"):
    """−ln p(class) of each word, smoothed by ``train.label_smoothing`` in training."""

    def build(self, setting: Setting) -> ClassifyTokens:
        check_loss_head(setting.model, self.kind, TokenClass)
        return ClassifyTokens(setting.recipe.train.label_smoothing, setting.recipe.objective.classes)


@final
@dataclass(frozen=True)
class Classify(Criterion):
    """Σ over texts of −ln p(class).

    Attributes:
        smoothing: ε of `summed_loss`, in training only.
    """

    smoothing: float = 0.0

    unit: ClassVar[str] = "texts"

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        return Sums((summed_loss(_logits(model, batch), batch.labels, self.smoothing),))

    def evaluation(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        logits = _logits(model, batch)
        counts = confusion(logits.argmax(-1), batch.labels, logits.shape[-1])
        return Sums((summed_loss(logits, batch.labels),), {"confusion": counts})

    def summary(self, measures: Mapping[str, Tensor], counts: Counts) -> dict[str, Tensor]:
        return _scores(measures)


@final
@dataclass(frozen=True)
class ClassifyTokens(Criterion):
    """Σ over words of −ln p(class).

    Attributes:
        smoothing: ε of `summed_loss`, in training only.
        names: of the classes; where they mark spans, spans are scored.
    """

    smoothing: float
    names: tuple[str, ...]

    unit: ClassVar[str] = "words"

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        logits = _logits(model, batch)  # [B, T, C]
        return Sums((summed_loss(logits.flatten(0, 1), batch.labels.flatten(), self.smoothing),))

    def evaluation(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        logits = _logits(model, batch)
        known = batch.labels != IGNORE
        predicted, true = logits.argmax(-1), batch.labels
        measures = {"confusion": confusion(predicted[known], true[known], logits.shape[-1])}
        if is_scheme(self.names):
            rows = [span_counts(*map(self._named, row)) for row in _rows(predicted, true, known)]
            measures["spans"] = torch.tensor(rows).sum(0)
        return Sums((summed_loss(logits[known], true[known]),), measures)

    def summary(self, measures: Mapping[str, Tensor], counts: Counts) -> dict[str, Tensor]:
        return _scores(measures)

    def _named(self, classes: Tensor) -> list[str]:
        return [self.names[number] for number in classes.tolist()]


def _logits(model: Transformer, batch: Batch) -> Tensor:
    """What the head says, as labels are: [B, C] or [B, T, C]."""
    logits: Tensor = model(batch.ids, tags=batch.tags, token_types=batch.token_types)
    return logits


def _rows(predicted: Tensor, true: Tensor, known: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The labelled words of each row."""
    return [(ours[here], theirs[here]) for ours, theirs, here in zip(predicted, true, known, strict=True)]


def _scores(measures: Mapping[str, Tensor]) -> dict[str, Tensor]:
    scores: dict[str, Tensor] = {}
    if "confusion" in measures:
        scores |= {"accuracy": accuracy(measures["confusion"]), "macro_f1": macro_f1(measures["confusion"])}
    if "spans" in measures:
        scores["span_f1"] = span_f1(measures["spans"])
    return scores
