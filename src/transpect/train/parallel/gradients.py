"""How gradients come together over the processes that read different rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm

from transpect.core.moe import MoeModule
from transpect.data.batch import Batch
from transpect.train.parallel.sharding import shard
from transpect.train.parallel.world import Compute, Through, directly, one_by_one
from transpect.train.precision import Precision

BUCKET = 2**24
"""Numbers that are sent at a time."""


class Around(nn.Module):
    """Whatever is computed of a model, as the forward pass of one module, which DDP and FSDP attend to."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Compute, batch: Batch) -> Tensor:
        return compute(batch)


class Gradients(ABC):
    """A model whose gradients are sums over processes, not means."""

    @abstractmethod
    def accumulate(self, batches: Sequence[Batch], compute: Compute, factor: float, precision: Precision) -> Tensor:
        """As `World.accumulate`."""

    @abstractmethod
    def through(self, last: bool) -> AbstractContextManager[Through]:
        """For a pass; gradients are added up in the ``last`` one of an update."""


@final
class Replicated(Gradients):
    """Each process has all weights, and gradients are added up while they come (DDP)."""

    def __init__(self, model: nn.Module, mesh: DeviceMesh) -> None:
        partly = any(isinstance(module, MoeModule) for module in model.modules())  # experts whom no token asked
        self._ddp = DistributedDataParallel(
            Around(model),
            process_group=mesh.get_group(),
            forward_sync_buffers=False,
            gradient_as_bucket_view=True,
            find_unused_parameters=partly,
        )
        self._ddp.register_comm_hook(mesh.get_group(), lambda group, bucket: _summed(group, bucket.buffer()))

    def accumulate(self, batches: Sequence[Batch], compute: Compute, factor: float, precision: Precision) -> Tensor:
        return one_by_one(self.through, batches, compute, factor)

    @contextmanager
    def through(self, last: bool) -> Iterator[Through]:
        with nullcontext() if last else self._ddp.no_sync():
            yield self._ddp


@final
class Sharded(Gradients):
    """Each process has a part of every weight and of its gradient (FSDP)."""

    def __init__(self, model: nn.Module, mesh: DeviceMesh) -> None:
        self._around: Any = shard(Around(model), mesh)

    def accumulate(self, batches: Sequence[Batch], compute: Compute, factor: float, precision: Precision) -> Tensor:
        return one_by_one(self.through, batches, compute, factor)

    @contextmanager
    def through(self, last: bool) -> Iterator[Through]:
        self._around.set_requires_gradient_sync(last)
        yield self._around


@final
class AddedUp(Gradients):
    """Each process has the same weights, or the same parts of them, and gradients are added up when all have come: for
    weights that are DTensors, which DDP knows nothing of, and for stages of a pipeline."""

    def __init__(self, model: nn.Module, mesh: DeviceMesh) -> None:
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._group = mesh.get_group()

    def accumulate(self, batches: Sequence[Batch], compute: Compute, factor: float, precision: Precision) -> Tensor:
        return one_by_one(self.through, batches, compute, factor)

    @contextmanager
    def through(self, last: bool) -> Iterator[Through]:
        yield directly
        if last and torch.is_grad_enabled():
            self.add_up()

    def add_up(self) -> None:
        """Let all gradients be sums over processes."""
        for weight in self._weights:
            if isinstance(weight, DTensor) and isinstance(weight.grad, DTensor):
                weight.grad = weight.grad.redistribute(placements=weight.placements)
        sum_gradients(self._weights, self._group)


def sum_gradients(weights: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Add gradients up over ``group``, many at a time; one that no process has, of an expert whom no token asked, is
    left out."""
    if group.size() == 1 or not weights:
        return
    device = weights[0].device
    there = torch.tensor([weight.grad is not None for weight in weights], dtype=torch.int32, device=device)
    dist.all_reduce(there, dist.ReduceOp.MAX, group)
    bucket: list[Tensor] = []
    for weight in (weight for weight, one in zip(weights, there.tolist(), strict=True) if one):
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        bucket.append(weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad)
        if sum(gradient.numel() for gradient in bucket) >= BUCKET:
            _sum_together(bucket, group)
            bucket = []
    _sum_together(bucket, group)


def _sum_together(gradients: list[Tensor], group: dist.ProcessGroup) -> None:
    for kind in {gradient.dtype for gradient in gradients}:
        some = [gradient for gradient in gradients if gradient.dtype == kind]
        flat = torch.cat([gradient.flatten() for gradient in some])
        dist.all_reduce(flat, group=group)
        for gradient, total in zip(some, torch.split(flat, [one.numel() for one in some]), strict=True):
            gradient.copy_(total.view_as(gradient))


def _summed(group: dist.ProcessGroup, gradients: Tensor) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(gradients, group=group, async_op=True)
    assert work is not None
    first: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return first


def global_norm(gradients: Sequence[Tensor], sharers: int) -> Tensor:
    """‖g‖₂; every process must call it, and all come to the same number.

    Args:
        gradients: of the weights of this process, whole or of its parts.
        sharers: how many processes together hold what is in ``gradients`` once, if all is in parts; what is whole in
            several of them counts once.
    """
    by_copies: dict[int, list[Tensor]] = {}
    for gradient in gradients:
        by_copies.setdefault(sharers // _parts(gradient), []).append(
            gradient.to_local() if isinstance(gradient, DTensor) else gradient
        )
    squares = [get_total_norm(some).double().square() / copies for copies, some in by_copies.items()]
    square = torch.stack(squares).sum()
    dist.all_reduce(square)
    return square.sqrt().float()


def _parts(value: Tensor) -> int:
    """How many parts a tensor is in."""
    if not isinstance(value, DTensor):
        return 1
    sizes = zip(value.device_mesh.shape, value.placements, strict=True)
    return prod(size for size, placement in sizes if not isinstance(placement, Replicate))


def gathered(value: Tensor) -> Tensor:
    """All of a tensor that may be shared out."""
    if not isinstance(value, DTensor):
        return value
    if value.device_mesh.ndim > 1:  # FSDP's parts first, which lie within those of a matrix
        value = value.redistribute(placements=[Replicate(), *value.placements[1:]])
    return value.full_tensor()
