"""What else changes along a run, besides weights and the optimizer's memory, and so belongs to its state."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from torch import Tensor, nn

from transpect.base.codec import Data
from transpect.train.average import NO_AVERAGE, Average, NoAverage
from transpect.train.loss_scale import NO_SCALE, LossScale, NoScale
from transpect.train.recipe import TrainSpec
from transpect.train.schedules import Plateau, Scale, Standstill


class Dynamics:
    """The rate's reaction to the valid loss, the scale of the loss, and the average of the weights.

    Attributes:
        scale: of the loss.
        average: of the weights.
    """

    def __init__(self, spec: TrainSpec, model: nn.Module, d_model: int) -> None:
        assert spec.optimizer.lr is not None
        self.scale: LossScale | NoScale = LossScale() if spec.precision == "fp16" else NO_SCALE
        self.average: Average | NoAverage = NO_AVERAGE if spec.ema is None else Average(model, spec.ema)
        self._schedule, self._seen = spec.schedule, Standstill()
        self._measure = Scale(spec.optimizer.lr, spec.max_steps, d_model)

    def rate(self, n: int) -> float:
        """The rate of the n-th update, by what is known now."""
        return self._schedule.rate(n, replace(self._measure, drops=self._seen.drops))

    def hear(self, loss: float) -> None:
        """An evaluation gave this loss."""
        if isinstance(self._schedule, Plateau):
            self._seen = self._schedule.after(self._seen, loss)

    def measures(self) -> dict[str, float | int]:
        """What a line of metrics tells of it."""
        if isinstance(self.scale, NoScale):
            return {}
        return {"loss_scale": self.scale.factor, "skipped": self.scale.skipped}

    def data(self) -> Data:
        """All of it that is JSON."""
        scale = asdict(self.scale) if isinstance(self.scale, LossScale) else {}
        return {"seen": asdict(self._seen), "loss_scale": scale}

    def tensors(self) -> dict[str, Tensor]:
        """All of it that is tensors."""
        return self.average.tensors()

    def load(self, data: Any, tensors: dict[str, Tensor]) -> None:
        """Take up what `data` and `tensors` gave; what a state lacks begins anew."""
        self._seen = Standstill(**data.get("seen", {}))
        if isinstance(self.scale, LossScale):
            self.scale = LossScale(**data.get("loss_scale", {}))
        self.average.load(tensors)
