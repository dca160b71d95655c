"""From the environment that `torchrun` gives to a process, the world that it is part of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from transpect.train.parallel.spec import ParallelSpec
from transpect.train.parallel.world import ALONE, World


@contextmanager
def joined(spec: ParallelSpec, device: torch.device) -> Iterator[World]:
    """The world of a run, for as long as the block lasts.

    Raises:
        ConfigError: the processes are not as many as ``spec`` needs.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    spec.data_size(size)
    if size == 1:
        yield ALONE
        return
    import torch.distributed as dist

    from transpect.train.parallel.together import Together

    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Together(spec, device)
    finally:
        dist.destroy_process_group()
