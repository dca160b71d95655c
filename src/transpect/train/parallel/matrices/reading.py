"""Weights that are shared out as DTensors, and read as the plain tensors that a module computes with.

The modules of the core compute with plain tensors, by `nn.Linear` and by kernels that take a weight as it is. So each
keeps a DTensor under the weight's name, for the optimizer, the global norm and checkpoints, and finds the part of its
own process where it reads that attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

Read = Callable[[DTensor], Tensor]


@dataclass(frozen=True)
class Share:
    """How a weight lies in the processes of a mesh, and how each reads it.

    Attributes:
        placement: whole in each, or in parts.
        gradient: what each process comes to: of its part, of all of it alike, or a term of the sum.
        times: a factor; 1/n of a bias is added by each process to its term of a sum.
        rows: those that this process reads, None for all; the gradient of the others is 0 here.
    """

    placement: Placement
    gradient: Placement
    times: float = 1.0
    rows: slice | None = None

    def read(self, weight: DTensor) -> Tensor:
        """What this process computes with."""
        own = weight.to_local(grad_placements=[self.gradient])
        some = own if self.rows is None else own[self.rows]
        return some if self.times == 1.0 else some * self.times


OF_OUTPUTS = Share(Shard(0), Shard(0))
"""Each process has some rows of [outputs, inputs]: some of the heads, some of the inner features."""
OF_INPUTS = Share(Shard(1), Shard(1))
"""Each process has some columns, and computes a term of each output."""
ALIKE = Share(Replicate(), Replicate())
"""All have the weight, and compute the same with it."""
TERMS = Share(Replicate(), Partial())
"""All have the weight, and each computes with it for its own part."""


def whole(weight: DTensor) -> Tensor:
    """All of a weight, for what all processes compute alike."""
    return weight.full_tensor(grad_placements=[Replicate()])


def share_out(module: nn.Module, mesh: DeviceMesh, shares: Mapping[str, tuple[Placement, Read]]) -> None:
    """Turn weights of ``module`` into DTensors of ``mesh``, each by how it lies and how it is read.

    Every process holds all of them alike; nothing is sent.
    """
    for name, (placement, _) in shares.items():
        weight = module.get_parameter(name)
        shared = distribute_tensor(weight.detach(), mesh, [placement], src_data_rank=None)
        own = DTensor.from_local(  # a copy, so that the whole one can go
            shared.to_local().clone(),
            mesh,
            [placement],
            run_check=False,
            shape=weight.shape,
            stride=weight.contiguous().stride(),
        )
        module.register_parameter(name, nn.Parameter(own, requires_grad=weight.requires_grad))
    made: Any = module
    kind: Any = type(module)
    made.readings = {name: read for name, (_, read) in shares.items()}
    made.__class__ = _reading(kind, tuple(shares))


@cache
def _reading(kind: type[nn.Module], names: tuple[str, ...]) -> type[nn.Module]:
    """The same kind of module, but that its weights are read so."""
    return type(kind.__name__, (kind,), {name: property(partial(_read, name)) for name in names})


def _read(name: str, module: Any) -> Tensor:
    weight = module._parameters[name]
    # between two passes FSDP holds it in smaller parts, by a mesh of two axes, and looks for it here
    out: Tensor = module.readings[name](weight) if weight.device_mesh.ndim == 1 else weight
    return out
