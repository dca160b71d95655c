"""How a run is spread over the processes that `torchrun` starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transpect.base.errors import ConfigError

SHARED_OUT = {
    "tensor": "matrix products",
    "pipeline": "layers",
    "context": "tokens of a row, for which there are no attention kernels on a CPU with gloo",
}


@dataclass(frozen=True)
class ParallelSpec:
    """What the processes share out: always the rows of an update.

    Attributes:
        data: ``ddp``, each holds all weights and adds up gradients (Li et al. 2020, "PyTorch Distributed"); ``fsdp``,
            each keeps a part of weights, gradients and optimizer memory (Rajbhandari et al. 2020, "ZeRO", stage 3).
        tensor: processes that share out each matrix product; 1, more are refused.
        pipeline: processes that share out the layers; 1, more are refused.
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
            if getattr(self, name) < 1:
                raise ConfigError(f"parallel.{name} must be at least 1", value=getattr(self, name))
            if getattr(self, name) > 1:
                raise ConfigError(
                    f"this version shares out rows and weights (parallel.data), and no {SHARED_OUT[name]}",
                    value=f"parallel.{name}: {getattr(self, name)}",
                    remedy="Leave it at 1; memory is saved by parallel.data: fsdp, train.accumulate and short rows.",
                )
        if not self.heartbeat > 0.0:
            raise ConfigError("parallel.heartbeat must be above 0", value=self.heartbeat)
