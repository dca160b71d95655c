"""The processes of a run as a grid: who reads which rows, and who has which part of the model."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from transpect.base.codec import Data
from transpect.train.parallel.spec import ParallelSpec


class Grid:
    """Neighbours share out matrix products, which they talk most about; those that are furthest apart are stages.

    Attributes:
        mesh: of all processes.
        data: those that have the same part of the model, and read different rows.
        stream: which random numbers a process draws: those that compute the same draw the same.

    Raises:
        ConfigError: so many processes are no such grid.
    """

    def __init__(self, spec: ParallelSpec, device: torch.device) -> None:
        size = dist.get_world_size()
        spec.check(size)
        sizes = {"pipeline": spec.pipeline, "data": size // (spec.pipeline * spec.tensor), "tensor": spec.tensor}
        self._sizes = {name: count for name, count in sizes.items() if count > 1 or name == "data"}
        self.mesh = init_device_mesh(device.type, tuple(self._sizes.values()), mesh_dim_names=tuple(self._sizes))
        self.data = self.mesh["data"]
        self.stream = dist.get_rank() // spec.tensor

    @property
    def tensor(self) -> DeviceMesh:
        """Those that read the same rows with the same layers, where ``parallel.tensor`` is above 1."""
        return self.mesh["tensor"]

    @property
    def readers(self) -> Tensor:
        """[n, W]: of each part of the model, the processes that have it and read different rows."""
        ranks = self.mesh.mesh.movedim(list(self._sizes).index("data"), -1)
        return ranks.reshape(-1, self._sizes["data"])

    @property
    def pipeline(self) -> DeviceMesh:
        """Those that have the stages of one pipeline, where ``parallel.pipeline`` is above 1."""
        return self.mesh["pipeline"]

    @property
    def layout(self) -> Data:
        """What is shared out besides rows, as JSON data."""
        return {name: count for name, count in self._sizes.items() if name != "data"}
