"""The processes that `torchrun` started, as one world: a mesh of them, and what they do together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm

from transpect.base.codec import Data
from transpect.base.errors import ConfigError, TranspectError
from transpect.core.model import Transformer
from transpect.core.moe import MoeModule
from transpect.data.batch import Batch
from transpect.train.parallel.sharding import Sharded, shard
from transpect.train.parallel.shards import Shards, read_state
from transpect.train.parallel.shares import check_shares, deal, share
from transpect.train.parallel.spec import ParallelSpec
from transpect.train.parallel.state import Directory, Finish, Pending, Stored
from transpect.train.parallel.world import Compute, Through, World

if TYPE_CHECKING:
    from transpect.train.recipe import Recipe


@final
class Together(World):
    """One of several processes.

    Args:
        spec: what they share out.
        device: of this process.
    """

    def __init__(self, spec: ParallelSpec, device: torch.device) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.mesh = init_device_mesh(device.type, (self.size,), mesh_dim_names=("data",))
        self.spec = spec
        self._writers = dist.new_group(backend="gloo")  # for what is written while training goes on
        self._around: nn.Module = nn.Module()

    def check(self, recipe: Recipe) -> None:
        if recipe.objective.remembers is not None:
            raise ConfigError(
                "rows that go on from batch to batch are read by one process",
                value=f"objective {recipe.objective.kind}, {self.size} processes",
                remedy="Train it without torchrun, or choose an objective whose rows stand alone.",
            )
        if recipe.objective.needs.one_process:
            raise ConfigError(
                f"the objective {recipe.objective.kind} trains a second model along, which one process does",
                value=f"{self.size} processes",
                remedy="Train it without torchrun.",
            )
        if recipe.objective.needs.whole_batches and recipe.train.accumulate % self.size:
            raise ConfigError(
                f"rows of a batch of the objective {recipe.objective.kind} belong to each other, so each process reads "
                "micro-batches of its own",
                value=f"train.accumulate {recipe.train.accumulate}, {self.size} processes by rows",
                remedy=f"Set train.accumulate to {self.size} or a multiple of it.",
            )
        shares_weights = self.spec.data == "fsdp"
        whole = {
            "logging.samples": recipe.logging.samples,
            "logging.measures": recipe.logging.measures,
            "train.ema": recipe.train.ema,
        }
        asked = [name for name, value in whole.items() if value]
        if shares_weights and asked:
            raise ConfigError(
                f"{asked[0]} looks at whole weights, and processes that share weights out have none",
                value=f"parallel.data: {self.spec.data}",
                remedy="Leave it out, or train with parallel.data: ddp alone.",
            )
        check_shares(recipe.train.accumulate, recipe.train.batch_size, self.size)

    def spread(self, model: Transformer) -> None:
        around = Around(model)
        if self.spec.data == "fsdp":
            self._around = shard(around, self.mesh)
        else:
            self._around = replicate(around, self.mesh)

    def seed(self, seed: int) -> int:
        return (seed + 0x9E3779B97F4A7C15 * self.rank) % 2**63

    def share(self, update: Sequence[Batch], counted: Callable[[Batch], bool]) -> list[Batch]:
        return share(update, self.rank, self.size)

    def deal(self, batches: Iterable[Batch], counted: Callable[[Batch], bool]) -> Iterator[tuple[Batch, int]]:
        return deal(batches, self.rank, self.size)

    @contextmanager
    def through(self, *, last: bool = True) -> Iterator[Through]:
        with _adding_up(self._around, last):
            yield self._around

    def total(self, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total, group=self.mesh.get_group())
        return total

    def total_counts(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.total(torch.tensor(counts)).tolist())

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return global_norm(gradients)

    def any(self, flag: bool) -> bool:
        flags = torch.tensor(int(flag))
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def tell(self, make: Callable[[], bytes]) -> bytes:
        said: list[Any] = [None]
        if self.leads:
            try:
                said = [make()]
            except TranspectError as error:
                said = [error]
        dist.broadcast_object_list(said, src=0)
        if isinstance(said[0], TranspectError):
            raise said[0]
        assert isinstance(said[0], bytes)
        return said[0]

    @property
    def layout(self) -> Data:
        return {"processes": self.size, "data": self.spec.data}

    def write(self, tensors: dict[str, Tensor], directory: Directory, finish: Finish) -> Pending:
        return Shards(tensors, directory, finish, self._writers, self.tell)

    def read(self, stored: Stored, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        read_state(stored.folder, model, optimizer)

    def whole(self, model: Transformer) -> dict[str, Tensor]:
        weights = {name: _gathered(value) for name, value in model.state_dict().items()}
        return weights if self.leads else {}


class Around(nn.Module):
    """Whatever is computed of a model, as the forward pass of one module, which DDP and FSDP attend to."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Compute) -> Tensor:
        return compute()


def replicate(around: Around, mesh: DeviceMesh) -> DistributedDataParallel:
    """A model of which each process has all weights; their gradients are sums, not means."""
    partly = any(isinstance(module, MoeModule) for module in around.modules())  # experts whom no token asked
    ddp = DistributedDataParallel(
        around,
        process_group=mesh.get_group(),
        forward_sync_buffers=False,
        gradient_as_bucket_view=True,
        find_unused_parameters=partly,
    )
    ddp.register_comm_hook(mesh.get_group(), lambda group, bucket: _summed(group, bucket.buffer()))
    return ddp


def _summed(group: dist.ProcessGroup, gradients: Tensor) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(gradients, group=group, async_op=True)
    assert work is not None
    first: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return first


def _adding_up(around: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Gradients are kept to oneself until the last pass of an update."""
    if isinstance(around, Sharded):
        around.set_requires_gradient_sync(last)
        return nullcontext()
    assert isinstance(around, DistributedDataParallel)
    return nullcontext() if last else around.no_sync()


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """‖g‖₂; of shared-out gradients every process holds a part, and all come to the same number."""
    by_mesh: dict[DeviceMesh | None, list[Tensor]] = {}
    for gradient in gradients:
        by_mesh.setdefault(gradient.device_mesh if isinstance(gradient, DTensor) else None, []).append(gradient)
    norms = [_gathered(get_total_norm(some)) for some in by_mesh.values()]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))


def _gathered(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value
