"""Distillation: a model learns from what a teacher thinks of every token, beside what stands there.

For teacher p and student q, both at temperature T, and a label y, each labelled token costs ::

    α T² Σ_v p_T(v) ln (p_T(v) / q_T(v)) + (1 − α) · (−ln q(y))

T² keeps the weight of the first part whatever T is, since its gradient by the logits falls as 1/T².

Axes: N labelled tokens, V vocabulary.

Source: Hinton et al. 2015, §2.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from transpect.base.checks import above
from transpect.base.errors import ConfigError
from transpect.core.context import NO_MEMORY, Memory
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.interop import load_model
from transpect.interop.quantising import FULL
from transpect.text.tokenizer import Tokenizer
from transpect.train.criteria.base import Criterion, Loss, Setting, Sums
from transpect.train.cross_entropy import Readout, features_of, label_loss, summed_over_logits
from transpect.train.loss import check_head, labelled, rows_at_once
from transpect.train.model.initial import fitted


@final
@dataclass(frozen=True)
class Distillation(Loss, kind="distillation"):
    """Learn from a teacher with the same vocabulary, of any size or family.

    Attributes:
        teacher: a checkpoint, by any name that `transpect.interop.locate` knows.
        temperature: T.
        weight: α, the share of the teacher; the labels have the rest.
    """

    teacher: str
    temperature: float = 2.0
    weight: float = 0.5

    def __post_init__(self) -> None:
        above("temperature", self.temperature, 0)
        if not 0.0 < self.weight <= 1.0:
            raise ConfigError(
                "weight, the share of the teacher, must be above 0 and at most 1",
                value=self.weight,
                remedy="Without a teacher, leave train.loss out.",
            )

    def build(self, setting: Setting) -> TeacherCriterion:
        check_head(setting.model)
        recipe, objective = setting.recipe, setting.recipe.objective
        if recipe.train.label_smoothing:
            raise ConfigError(
                "a teacher smooths labels itself",
                value=f"label_smoothing {recipe.train.label_smoothing}",
                remedy="Set train.label_smoothing: 0.",
            )
        if objective.remembers is not None:
            raise ConfigError(
                "a teacher has no memory of earlier segments",
                value=f"objective {objective.kind}",
                remedy="Use the objective causal.",
            )
        origin = load_model(self.teacher, dtype="float32", quant=FULL)
        check_same_vocabulary(self.teacher, setting.tokenizer)
        try:
            assert recipe.data.seq_len is not None
            objective.check(origin.config, setting.tokenizer, recipe.data.seq_len)
        except ConfigError as error:
            error.rule = f"the teacher must fit the run: {error.rule}"
            error.remedy = "Choose another teacher, or a data.seq_len that both can read."
            raise
        if origin.config.vocab_size < setting.model.config.vocab_size:
            raise ConfigError(
                f"the teacher must know all {setting.model.config.vocab_size} ids of the student",
                value=origin.config.vocab_size,
                remedy=f"Set model.vocab_size to {setting.tokenizer.vocab_size}.",
            )
        teacher = fitted(origin, objective.adapt(origin.config), recipe.train.seed)[0]
        return TeacherCriterion(teacher.to(setting.model.device), self.temperature, self.weight)


def check_same_vocabulary(teacher: str, tokenizer: Tokenizer) -> None:
    """Refuse a teacher whose ids mean other tokens.

    Raises:
        ConfigError: it has a tokenizer of its own with other tokens.
    """
    from transpect.train.model.vocabulary import open_tokenizer

    theirs, ours = (dict(one.backend.get_vocab(with_added_tokens=True)) for one in (open_tokenizer(teacher), tokenizer))
    other = sorted((token for token in ours if theirs.get(token) != ours[token]), key=ours.__getitem__)
    if other:
        raise ConfigError(
            "teacher and student must have the same vocabulary",
            value=f"{len(other)} tokens differ, as id {ours[other[0]]}: {other[0]!r}",
            remedy=f"Use the teacher's tokenizer: tokenizer: {{path: {teacher}}}.",
        )


@final
class TeacherCriterion(Criterion):
    """The formula of this module. Measures: ``kl`` (of T² KL, nats a label) and ``hard_loss`` (−ln q(y)).

    In evaluation the loss is −ln q(y) alone, so that it compares with that of a run without a teacher.

    Args:
        teacher: with the visibility of the student's rows; it is frozen, and put in evaluation mode.
        temperature: T.
        weight: α.
        scale: see `Criterion.scaled`.
    """

    def __init__(self, teacher: Transformer, temperature: float, weight: float, scale: float = 1.0) -> None:
        self._teacher = teacher.requires_grad_(requires_grad=False).eval()
        self._temperature, self._weight, self._scale = temperature, weight, scale

    def scaled(self, scale: float) -> TeacherCriterion:
        return TeacherCriterion(self._teacher, self._temperature, self._weight, scale)

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        return self._sums(model, batch, self._weight)

    def evaluation(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        sums = self._sums(model, batch, self._weight)
        return Sums((sums.measures["hard_loss"],), {"kl": sums.measures["kl"]})

    def _sums(self, model: Transformer, batch: Batch, weight: float) -> Sums:
        hidden, labels = labelled(model, batch)
        readout = Readout.of(model)
        with torch.no_grad():
            theirs = features_of(self._teacher, labelled(self._teacher, batch)[0])
        size = len(readout.weight)
        known = Readout.of(self._teacher)
        known = replace(known, weight=known.weight[:size], bias=None if known.bias is None else known.bias[:size])
        term = Distilled(labels, theirs, known, self._temperature, weight)
        at_once = max(1, rows_at_once(readout.weight) // 2)  # as many of the teacher's
        loss = summed_over_logits(features_of(model, hidden), readout, term, at_once=at_once, scale=self._scale)
        zero = loss.detach().new_zeros(())
        return Sums((loss,), {"kl": sum(term.soft, zero), "hard_loss": sum(term.hard, zero)})


@dataclass(frozen=True, eq=False)
class Distilled:
    """The term of each token, for `summed_over_logits`.

    Attributes:
        labels: [N].
        rows: what the teacher's head reads, [N, W].
        readout: of the teacher's head, for the V ids of the student.
        temperature: T.
        weight: α.
        soft: T² KL, summed, of each call.
        hard: −ln q(y), summed, of each call.
    """

    labels: Tensor
    rows: Tensor
    readout: Readout
    temperature: float
    weight: float
    soft: list[Tensor] = field(default_factory=list)
    hard: list[Tensor] = field(default_factory=list)

    def __call__(self, logits: Tensor, some: slice, *, slope: Tensor) -> Tensor:
        t, alpha = self.temperature, self.weight
        hard = label_loss(logits, self.labels[some], slope=slope)
        teacher = (self.readout.logits(self.rows[some]).to(logits) / t).log_softmax(-1)
        student = (logits / t).log_softmax(-1)
        p = teacher.exp()
        soft = t * t * (p * (teacher - student)).sum()
        slope *= 1.0 - alpha
        slope += (student.exp_() - p).mul_(alpha * t)
        self.soft.append(soft)
        self.hard.append(hard)
        return alpha * soft + (1.0 - alpha) * hard
