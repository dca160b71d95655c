"""Where activations go from what all processes of a group have alike to what each has a part of, and back.

Shoeybi et al. 2019 call the first two f and g (§3): each is the other's gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh


def entering(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """x, for each process to compute a part with; its gradient is the sum of what the parts give."""
    apply: Callable[..., Tensor] = _Entering.apply
    return apply(x, mesh.get_group())


def leaving(part: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum of the parts, which all processes have alike; as they have its gradient."""
    apply: Callable[..., Tensor] = _Leaving.apply
    return apply(part, mesh.get_group())


def joined_heads(heads: Tensor, mesh: DeviceMesh) -> Tensor:
    """The heads of all processes, [B, H/n, T, E] -> [B, H, T, E]; `own_heads` takes them apart again."""
    apply: Callable[..., Tensor] = _Joined.apply
    return apply(heads, mesh)


def own_heads(heads: Tensor, mesh: DeviceMesh) -> Tensor:
    """[B, H, T, E] -> [B, H/n, T, E]: the part of this process."""
    return heads.chunk(mesh.size(), 1)[mesh.get_local_rank()]


def summed(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over processes, in memory of its own."""
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


class _Entering(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor, None]:
        return summed(by, ctx.group), None


class _Leaving(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        return summed(part, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor, None]:
        return by, None


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, heads: Tensor, mesh: DeviceMesh) -> Tensor:
        ctx.mesh = mesh
        parts = [torch.empty_like(heads, memory_format=torch.contiguous_format) for _ in range(mesh.size())]
        dist.all_gather(parts, heads.contiguous(), group=mesh.get_group())
        return torch.cat(parts, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor, None]:
        return own_heads(summed(by, ctx.mesh.get_group()), ctx.mesh), None
