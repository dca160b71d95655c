"""Weights that several stages have: a token table that the head reads too, positions that all layers look up."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from transpect.train.parallel.gradients import sum_gradients


class SharedWeights:
    """The weights of a stage that other stages have as well. Their gradients are added up over those stages, so that
    all copies stay the same; in a norm and in a checkpoint the first copy counts.

    Args:
        model: a stage.
        mesh: of all processes.

    Attributes:
        copies: those weights here that an earlier stage has as well.
    """

    def __init__(self, model: nn.Module, mesh: DeviceMesh) -> None:
        own, stage = dict(model.named_parameters()), mesh["pipeline"].get_local_rank()
        names: list[Any] = [None] * mesh["pipeline"].size()
        dist.all_gather_object(names, list(own), group=mesh["pipeline"].get_group())
        every = dict.fromkeys(name for stage_names in names for name in stage_names)
        holders = {name: tuple(i for i, stage_names in enumerate(names) if name in stage_names) for name in every}
        self.copies = {own[name] for name, stages in holders.items() if name in own and stages[0] < stage}
        self._groups: list[tuple[list[nn.Parameter], dist.ProcessGroup]] = []
        for stages in dict.fromkeys(stages for stages in holders.values() if len(stages) > 1):
            # every process takes part in making every group, in the same order
            columns = mesh.mesh[list(stages)].flatten(1).T.tolist()
            group, _ = dist.new_subgroups_by_enumeration(columns)  # type: ignore[no-untyped-call]
            weights = [own[name] for name, those in holders.items() if those == stages and name in own]
            if weights:
                self._groups.append((weights, group))

    def add_up(self) -> None:
        """Let the gradients of all copies be their sum."""
        for weights, group in self._groups:
            sum_gradients([weight for weight in weights if weight.requires_grad], group)
