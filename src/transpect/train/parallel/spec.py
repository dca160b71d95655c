"""How a run is spread over the processes that `torchrun` starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transpect.base.errors import ConfigError


@dataclass(frozen=True)
class ParallelSpec:
    """What the processes share out. Of W processes, W / (tensor · pipeline) share out the rows of an update.

    Attributes:
        data: ``ddp``, each holds all weights and adds up gradients (Li et al. 2020, "PyTorch Distributed"); ``fsdp``,
            each keeps a part of weights, gradients and optimizer memory (Rajbhandari et al. 2020, "ZeRO", stage 3).
        tensor: processes that share out each matrix product (Shoeybi et al. 2019, "Megatron-LM", §3).
        pipeline: processes that share out the layers (Narayanan et al. 2021, §2.2).
        context: processes that share out the tokens of a row.
        heartbeat: seconds without a sign of life after which a process counts as dead, and the others end.
    """

    data: Literal["ddp", "fsdp"] = "ddp"
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    heartbeat: float = 20.0

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "context"):
            if getattr(self, name) < 1:
                raise ConfigError(f"parallel.{name} must be at least 1", value=getattr(self, name))
        if self.context > 1:
            raise ConfigError(
                "context parallelism needs attention kernels that pass keys round between processes, and neither a CPU "
                "with gloo nor this version has them",
                value=f"parallel.context: {self.context}",
                remedy="Leave it at 1; long rows need less memory with parallel.data: fsdp and train.accumulate.",
            )
        if not self.heartbeat > 0.0:
            raise ConfigError("parallel.heartbeat must be above 0", value=self.heartbeat)

    @property
    def together(self) -> int:
        """How many processes work on the same rows."""
        return self.tensor * self.pipeline

    def data_size(self, world_size: int) -> int:
        """How many groups of processes share out the rows.

        Raises:
            ConfigError: the processes can't be grouped so.
        """
        if world_size % self.together:
            raise ConfigError(
                "the number of processes must be a multiple of parallel.tensor · parallel.pipeline",
                value=f"{world_size} processes, tensor {self.tensor}, pipeline {self.pipeline}",
                remedy=f"Start them with torchrun --nproc-per-node {self.together}, or a multiple of it.",
            )
        return world_size // self.together
