"""Weights, gradients and optimizer memory in parts: FSDP2's ``fully_shard``, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from transpect.core.blocks import Layer

Sharded = FSDPModule


def shard(around: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Let each process of ``mesh`` keep a part of every weight; a layer is whole while it is computed.

    Gradients are sums over the processes, not means.
    """
    for layer in around.modules():
        if isinstance(layer, Layer):
            _shard(layer, mesh)
    return _shard(around, mesh)


def whole_to_parts(shared: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute something of a whole tensor in each process, and keep of it the part that each has of that tensor."""
    assert isinstance(shared, DTensor)
    return distribute_tensor(compute(shared.full_tensor()), shared.device_mesh, shared.placements, src_data_rank=None)


def _shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    sharded: Any = fully_shard(module, mesh=mesh)
    sharded.set_gradient_divide_factor(1.0)
    sharded.set_force_sum_reduction_for_comms(True)  # gloo knows no other
    assert isinstance(sharded, nn.Module)
    return sharded
