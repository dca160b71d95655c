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
        TrainingError: one of them is gone.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    import torch.distributed as dist

    from transpect.train.parallel.heartbeat import Heartbeat, gone, is_loss
    from transpect.train.parallel.together import Together

    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    heartbeat = Heartbeat(dist.get_rank(), size, spec.heartbeat)
    try:
        yield Together(spec, device)
        heartbeat.stop()
        dist.barrier()  # whoever holds the store leaves last
    except RuntimeError as error:
        if is_loss(error):
            raise gone(str(error)) from error
        raise
    finally:
        dist.destroy_process_group()


def restarted() -> bool:
    """Whether `torchrun` started this process in the place of one that failed (``--max-restarts``)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
