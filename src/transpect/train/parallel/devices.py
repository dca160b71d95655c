"""The device of one of several processes."""

from __future__ import annotations

import os

import torch


def local_device(device: torch.device) -> torch.device:
    """The device of this process: of several GPUs, the one that `torchrun` numbered it by."""
    if device.type == "cuda" and device.index is None and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device
