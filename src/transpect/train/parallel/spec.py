"""How a run is spread over the processes that `torchrun` starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transpect.base.checks import MANY, above, at_most, within
from transpect.base.errors import ConfigError

DAY = 86_400.0
"""Seconds."""


@dataclass(frozen=True)
class ParallelSpec:
    """What the processes share out: the rows of an update, and each model among ``tensor`` · ``pipeline`` of them.

    Attributes:
        data: ``ddp``, each holds all weights and adds up gradients (Li et al. 2020, "PyTorch Distributed"); ``fsdp``,
            each keeps a part of weights, gradients and optimizer memory (Rajbhandari et al. 2020, "ZeRO", stage 3).
        tensor: processes that share out each matrix product (Shoeybi et al. 2019, "Megatron-LM").
        pipeline: processes that share out the layers (Huang et al. 2019, "GPipe"; Narayanan et al. 2021, §2.2).
        context: processes that share out the tokens of a row; 1, more are refused.
        heartbeat: seconds without a sign of life after which a process counts as dead, and the others end.
    """

    data: Literal["ddp", "fsdp"] = "ddp"
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    heartbeat: float = 20.0

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "context"):
            within(name, getattr(self, name), high=MANY)
        if self.context > 1:
            raise ConfigError(
                "this version does not share out the tokens of a row, for which there are no attention kernels on a "
                "CPU with gloo",
                value=f"parallel.context: {self.context}",
                remedy="Leave it at 1; memory is saved by parallel.data: fsdp, parallel.tensor and short rows.",
            )
        above("heartbeat", self.heartbeat, 0)
        at_most("heartbeat", self.heartbeat, DAY)

    def check(self, processes: int) -> None:
        """Refuse a number of processes that is no multiple of those that share one model.

        Raises:
            ConfigError: it is none.
        """
        together = self.tensor * self.pipeline
        if processes % together:
            raise ConfigError(
                f"{together} processes share out one model, so there must be a multiple of them",
                value=f"{self.shown}, {processes} process{'es' * (processes > 1)}",
                remedy=f"Start it by torchrun --nproc-per-node {together}.",
            )

    @property
    def shown(self) -> str:
        """What is shared out, as a recipe says it."""
        more = {name: getattr(self, name) for name in ("tensor", "pipeline") if getattr(self, name) > 1}
        return ", ".join(f"parallel.{name}: {value}" for name, value in {"data": self.data, **more}.items())
