"""An exponential moving average of the weights, which is often the better model (Polyak & Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.base.checks import share


@dataclass(frozen=True)
class Ema:
    """a ← d·a + (1 − d)·w after the n-th update, d = min(decay, (1 + n)/(10 + n)), so that it soon forgets the initial
    weights.

    Attributes:
        decay: the largest d.
        evaluate: whether evaluations, and so ``best/``, are of the average; else they are of the weights.
    """

    decay: float = 0.999
    evaluate: bool = True

    def __post_init__(self) -> None:
        share("decay", self.decay)


class Average:
    """The average of the trainable weights of a model, in their dtype."""

    def __init__(self, model: nn.Module, options: Ema) -> None:
        self.options = options
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._means = {name: weight.detach().clone() for name, weight in self._weights.items()}

    def take(self, n: int) -> None:
        """Take in the weights after the n-th update."""
        decay = min(self.options.decay, (1 + n) / (10 + n))
        means, weights = list(self._means.values()), [weight.detach() for weight in self._weights.values()]
        torch._foreach_lerp_(means, weights, 1.0 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While it is entered, the model's weights are the average."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def where_evaluated(self) -> AbstractContextManager[None]:
        """`in_place` if evaluations are of the average."""
        return self.in_place() if self.options.evaluate else nullcontext()

    def tensors(self) -> dict[str, Tensor]:
        """The average by name of the weight."""
        return dict(self._means)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take up what `tensors` gave; of what it lacks, the average begins with the weights."""
        for name, weight in self._weights.items():
            self._means[name].copy_(tensors.get(name, weight.detach()))

    def _swap(self) -> None:
        for name, weight in self._weights.items():
            weight.data, self._means[name] = self._means[name], weight.data


class NoAverage:
    """Where the weights alone count."""

    def take(self, n: int) -> None:
        """Nothing."""

    def where_evaluated(self) -> AbstractContextManager[None]:
        """The weights as they are."""
        return nullcontext()

    def tensors(self) -> dict[str, Tensor]:
        """None."""
        return {}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Nothing."""


NO_AVERAGE = NoAverage()
