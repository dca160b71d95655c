"""What autocast is to kernels whose steps it would treat one by one.

torch's own attention is one operation to it: queries, keys and values become bfloat16 (or float16), and what happens
inside, where sums are kept in float32, is left alone. A backward pass usually runs outside of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def lowered(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In the dtype of autocast where that is on, but for float64, which it leaves alone."""
    device = tensors[0].device.type
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x if x.dtype == torch.float64 else x.to(dtype) for x in tensors)


def as_it_is(device: torch.device) -> AbstractContextManager[object]:
    """Without autocast, whatever is on; some devices know none."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()
