"""What one stage of a pipeline knows, for the others."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh


def last_stage_says(values: dict[str, Tensor], pipeline: DeviceMesh) -> dict[str, Tensor]:
    """What the stage with the end of the model knows, in all of them."""
    said: list[Any] = [{name: value.cpu() for name, value in values.items()}]
    dist.broadcast_object_list(said, group=pipeline.get_group(), group_src=pipeline.size() - 1)
    return dict(said[0])


def first_stage_hears(weights: dict[str, Tensor], pipeline: DeviceMesh) -> dict[str, Tensor]:
    """The weights of all stages, in the first one; in the others nothing."""
    group, stage = pipeline.get_group(), pipeline.get_local_rank()
    shapes: list[Any] = [None] * pipeline.size()
    dist.all_gather_object(shapes, {name: (value.shape, value.dtype) for name, value in weights.items()}, group=group)
    if stage > 0:
        for value in weights.values():
            dist.send(value.contiguous(), group=group, group_dst=0)
        return {}
    whole = dict(weights)
    for other, those in enumerate(shapes[1:], 1):
        for name, (shape, dtype) in those.items():
            received = torch.empty(shape, dtype=dtype, device=next(iter(weights.values())).device)
            dist.recv(received, group=group, group_src=other)
            whole.setdefault(name, received)
    return whole
