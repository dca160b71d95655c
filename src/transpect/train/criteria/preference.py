"""Preference tuning: make the chosen answer more probable than the rejected one, measured against a reference.

For a prompt x with answers y_c and y_r, model π and reference ρ, ::

    h = ln π(y_c | x) / ρ(y_c | x) − ln π(y_r | x) / ρ(y_r | x)

where ln π(y | x) is the sum over the answer's tokens, its end included. The reward of an answer is β ln π / ρ, so β h
is the margin of the chosen one. Where both answers are the same, h is 0.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.checks import above
from transpect.base.errors import ConfigError
from transpect.core.context import NO_MEMORY, Memory
from transpect.core.model import Transformer
from transpect.core.tags import Tags
from transpect.data.batch import IGNORE, Batch
from transpect.data.objectives import Preference
from transpect.train.criteria.base import Counts, Criterion, Loss, Setting, Sums
from transpect.train.cross_entropy import Readout, features_of
from transpect.train.log_probs import label_log_probs
from transpect.train.loss import check_head, labelled, rows_at_once
from transpect.train.model.initial import initial_model


class PreferenceLoss(Loss):
    """What the losses over preferences share.

    Attributes:
        beta: β, how much a departure from the reference weighs.
        reference: the checkpoint that is ρ; None is what the run begins with.
    """

    beta: float
    reference: str | None

    @abstractmethod
    def of(self, margins: Tensor) -> Tensor:
        """The loss of each preference, from h: [B] -> [B]."""

    @final
    def build(self, setting: Setting) -> PreferenceCriterion:
        check_head(setting.model)
        train = setting.recipe.train
        if not isinstance(setting.recipe.objective, Preference):
            raise ConfigError(
                f"the loss {self.kind} needs the objective preference",
                value=setting.recipe.objective.kind,
                remedy="Set data.objective: preference, or leave train.loss out.",
            )
        if train.label_smoothing:
            raise ConfigError(
                f"train.label_smoothing is for tokens, and the loss {self.kind} has none",
                value=train.label_smoothing,
                remedy="Set train.loss.label_smoothing of dpo, which is for preferences.",
            )
        frozen = initial_model(setting.model.config, self._origin(setting), train.seed, setting.known_tokens).model
        return PreferenceCriterion(self, Reference(frozen.to(setting.model.device)))

    def _origin(self, setting: Setting) -> str | None:
        return setting.recipe.model.path if self.reference is None else self.reference

    def _check_beta(self) -> None:
        above("beta", self.beta, 0)


@final
@dataclass(frozen=True)
class Dpo(PreferenceLoss, kind="dpo"):
    """−(1 − ε) ln σ(β h) − ε ln σ(−β h)  (Rafailov et al. 2023, eq. 7; ε: Mitchell 2023, "cDPO").

    Attributes:
        beta: β.
        label_smoothing: ε, the share of preferences that are thought to be the wrong way round.
        reference: a checkpoint; None is what the run begins with.
    """

    beta: float = 0.1
    label_smoothing: float = 0.0
    reference: str | None = None

    def __post_init__(self) -> None:
        self._check_beta()
        if not 0.0 <= self.label_smoothing < 0.5:
            raise ConfigError("label_smoothing must be at least 0 and below 0.5", value=self.label_smoothing)

    def of(self, margins: Tensor) -> Tensor:
        right = functional.logsigmoid(self.beta * margins)
        wrong = functional.logsigmoid(-self.beta * margins)
        return -(1.0 - self.label_smoothing) * right - self.label_smoothing * wrong


@final
@dataclass(frozen=True)
class Ipo(PreferenceLoss, kind="ipo"):
    """(h − 1 / (2β))²  (Azar et al. 2023, eq. 17, where β is τ).

    Attributes:
        beta: β.
        reference: a checkpoint; None is what the run begins with.
    """

    beta: float = 0.1
    reference: str | None = None

    def __post_init__(self) -> None:
        self._check_beta()

    def of(self, margins: Tensor) -> Tensor:
        return (margins - 0.5 / self.beta).square()


@final
class PreferenceCriterion(Criterion):
    """The mean of a loss over preferences.

    Its measures are means too: ``reward_chosen``, ``reward_rejected`` and ``reward_margin`` (β h), and ``accuracy``,
    the share of preferences with h > 0.
    """

    unit: ClassVar[str] = "preferences"

    def __init__(self, loss: PreferenceLoss, reference: Reference) -> None:
        self._loss, self._reference = loss, reference

    def counts(self, batch: Batch) -> Counts:
        return (len(batch.ids),)

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        found = answer_log_probs(model, batch)
        ratios = found - self._reference.log_probs(batch).to(found)  # [B, 2]
        margins = ratios[:, 0] - ratios[:, 1]
        with torch.no_grad():
            rewards = self._loss.beta * ratios.detach().sum(0)
            measures = {
                "reward_chosen": rewards[0],
                "reward_rejected": rewards[1],
                "reward_margin": rewards[0] - rewards[1],
                "accuracy": (margins > 0).sum().to(rewards),
            }
        return Sums((self._loss.of(margins).sum(),), measures)


class Reference:
    """What a frozen model says of answers, asked once for each preference.

    Args:
        model: with the visibility of the one that is trained; it is put in evaluation mode.
    """

    def __init__(self, model: Transformer) -> None:
        self._model = model.requires_grad_(requires_grad=False).eval()
        self._known: dict[bytes, Tensor] = {}

    @torch.no_grad()
    def log_probs(self, batch: Batch) -> Tensor:
        """[B, 2]: of the chosen and of the rejected answer."""
        keys = _keys(batch)
        new = [row for row, key in enumerate(keys) if key not in self._known]
        if new:
            asked = answer_log_probs(self._model, _rows(batch, new))
            self._known |= {keys[row]: found for row, found in zip(new, asked, strict=True)}
        return torch.stack([self._known[key] for key in keys])


def answer_log_probs(model: Transformer, batch: Batch) -> Tensor:
    """[B, 2]: Σ ln p(label) over the labels of segment 0 (chosen) and 1 (rejected) of each row."""
    hidden, labels = labelled(model, batch)
    readout = Readout.of(model)
    found = label_log_probs(features_of(model, hidden), labels, readout, at_once=rows_at_once(readout.weight))
    row = torch.arange(len(batch.ids), device=batch.ids.device)[:, None]
    place = (2 * row + batch.tags.segment).flatten()[batch.labels.flatten() != IGNORE]  # [N], of 2B sums
    return found.new_zeros(2 * len(batch.ids)).index_add(0, place, found).view(-1, 2)


def _keys(batch: Batch) -> list[bytes]:
    """What tells a row from others: what it reads, without padding, and what it predicts."""
    real = (batch.tags.position >= 0).cpu()
    columns = torch.stack([batch.ids, batch.labels, batch.tags.segment], -1).cpu()
    read = [row[own].numpy().tobytes() for row, own in zip(columns, real, strict=True)]
    return [blake2b(row, digest_size=16).digest() for row in read]


def _rows(batch: Batch, rows: list[int]) -> Batch:
    if len(rows) == len(batch.ids):
        return batch
    index = torch.tensor(rows, device=batch.ids.device)
    tags = Tags.of(batch.tags.position[index], segment=batch.tags.segment[index])
    return replace(batch, ids=batch.ids[index], labels=batch.labels[index], tags=tags)
