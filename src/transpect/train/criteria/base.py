"""What every criterion is: the loss of a batch as sums, of which an update and an evaluation make means.

A recipe names a `Loss`, ``train.loss: {kind: …}``; where it names none, the objective does (`Objective.loss`). `build`
turns it into a `Criterion` once, with all that it needs: frozen models, tables, temperatures. So no step asks what kind
it is. The loss of an update is ::

    Σ_k (Σ over batches of losses[k]) / (Σ over batches of counts[k])

however its rows are spread over micro-batches. Most criteria have one part, whose count is the labels; one with
several, each a mean over something else, has a loss and a count for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, cast, final

import torch
from torch import Tensor

from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.core.config import ModelConfig
from transpect.core.context import NO_MEMORY, Memory
from transpect.core.heads import Head
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.data.objectives import Objective
from transpect.text.tokenizer import Tokenizer
from transpect.train.parallel.world import ALONE, World

if TYPE_CHECKING:
    from transpect.train.recipe import Recipe

Counts = tuple[int, ...]
"""How many terms each part of a loss sums."""

LOSS = ""
"""What a loss is called beside measures, which have names."""


@dataclass(frozen=True, eq=False)
class Sums:
    """What a criterion says of one batch.

    Attributes:
        losses: [] each, summed over the batch and in training with their graph; weights of parts are already in them.
        measures: [] or more, sums without a graph, by name; `Criterion.summary` makes of them what is recorded.
    """

    losses: tuple[Tensor, ...]
    measures: Mapping[str, Tensor] = field(default_factory=dict)

    def times(self, weight: int) -> Sums:
        """The same, or with weight 0 nothing, whatever it was."""
        if weight:
            return self
        nothing = {name: torch.zeros_like(value) for name, value in self.measures.items()}
        return Sums(tuple(torch.zeros_like(loss) for loss in self.losses), nothing)


class Criterion(ABC):
    """A loss with all that it needs; it is called under autocast, on batches that are where the model is."""

    unit: ClassVar[str] = "tokens"
    """What the first count counts. Where that is tokens, the loss is nats a token, and has a perplexity."""

    by_rows: ClassVar[bool] = False
    """Whether its sums are sums over rows, each of which could be read without those beside it."""

    def counts(self, batch: Batch) -> Counts:
        """How many terms each part sums over ``batch``, read off the batch alone; all 0 is a batch to pass over."""
        return (batch.n_labels,)

    def scaled(self, scale: float) -> Criterion:
        """The same, for a backward pass that begins with about ``scale``: of use to those who make a gradient before
        that, in float16."""
        return self

    @abstractmethod
    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        """The sums to be differentiated.

        Args:
            model: in training mode.
            batch: a micro-batch with something to count.
            memory: of the batches that this one goes on from.
        """

    def evaluation(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        """The sums to judge a model by, under `torch.no_grad`; what is for training alone is left out."""
        return self.training(model, batch, memory)

    def beside(self, config: ModelConfig) -> dict[str, ModelConfig]:
        """Models that are trained within this one, of config ``config``, as its modules of these names; each is saved
        in a directory of its name beside it."""
        return {}

    def summary(self, measures: Mapping[str, Tensor], counts: Counts) -> dict[str, Tensor]:
        """What is recorded of the measures of several batches, added up: their means over the first count."""
        return {name: value / counts[0] for name, value in measures.items()}


@dataclass(frozen=True, eq=False)
class Setting:
    """What a criterion may be built from.

    Attributes:
        recipe: resolved.
        model: with its initial weights, on its device; a run that goes on has not loaded its own yet.
        tokenizer: the run's.
        known_tokens: how many of its tokens the checkpoint knew that the run begins with; None is all.
        world: the processes that share the run out.
    """

    recipe: Recipe
    model: Transformer
    tokenizer: Tokenizer
    known_tokens: int | None = None
    world: World = ALONE


class Loss(Variant):
    """Options of a criterion; a kind owns its own."""

    @abstractmethod
    def build(self, setting: Setting) -> Criterion:
        """The criterion of a run.

        Raises:
            ConfigError: it does not fit the model, the objective, or what the recipe says beside it.
        """


def usual_loss(objective: Objective) -> Loss:
    """What an objective is trained with where nothing else is said, with its default options."""
    return cast(Loss, Loss.kinds()[objective.loss]())


def check_loss_head(model: Transformer, loss: str, *heads: type[Head]) -> None:
    """Refuse a head that a loss can't be taken of.

    Raises:
        ConfigError: another kind of head.
    """
    if not isinstance(model.config.head, heads):
        kinds = " or ".join(head.kind for head in heads)
        raise ConfigError(
            f"the loss {loss} needs the head {kinds}",
            value=model.config.head.kind,
            remedy="Leave train.loss out for the one that belongs to the objective, or set model.head.",
        )


@final
class Tally:
    """Sums of several batches."""

    def __init__(self) -> None:
        self.measures: dict[str, Tensor] = {}

    def add(self, sums: Sums) -> None:
        """Take a batch up."""
        for name, value in sums.measures.items():
            self.measures[name] = self.measures[name] + value if name in self.measures else value


def total_counts(counts: Iterable[Counts]) -> Counts:
    """The counts of several batches, added up."""
    return tuple(map(sum, zip(*counts, strict=True)))


def mean_loss(losses: Sequence[Tensor], totals: Counts) -> Tensor:
    """Σ_k losses[k] / totals[k], over the parts that have something to count."""
    parts = [loss / total for loss, total in zip(losses, totals, strict=True) if total]
    first, *others = parts
    for part in others:
        first = first + part
    return first
