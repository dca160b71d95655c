"""Where the past of a row stands in its logits.

Axes: B batch, V vocabulary, N places.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from transpect.decode.trace import Trace

HIDDEN = float("-inf")

MOST = 1e30
"""No filter moves a logit further from 0 than this: what is finite stays finite, however many of them add up."""


def tensor_of(*parts: Iterable[int]) -> Tensor:
    """[N] int64 on the CPU, the ids of all parts one after the other; an array in between is many times faster than a
    tensor of a tuple."""
    flat = array("q")
    for part in parts:
        flat.extend(part)
    return torch.frombuffer(flat, dtype=torch.int64) if flat else torch.empty(0, dtype=torch.int64)


def quick(logits: Tensor) -> bool:
    """Whether NumPy does to them in a fifth of the time what PyTorch does: it asks less before it begins."""
    return logits.device.type == "cpu" and logits.dtype == torch.float32


def best(logits: Tensor) -> Tensor:
    """The largest of each row: [B, V] -> [B]."""
    return torch.from_numpy(logits.numpy().max(-1)) if quick(logits) else logits.amax(-1)


def history(trace: Trace) -> Tensor:
    """[N] int64 on the CPU: prompt and output of a row."""
    return tensor_of(trace.prompt, trace.written)


def read(trace: Trace) -> tuple[int, ...]:
    """What a row answers: the source of an encoder–decoder, a decoder's prompt."""
    return trace.prompt if trace.source is None else trace.source


def tail(trace: Trace, length: int) -> tuple[int, ...]:
    """The last ids of prompt and output; all of them where there are not so many."""
    if length <= len(trace.written):
        return trace.written[len(trace.written) - length :]
    return trace.prompt[max(0, len(trace.prompt) - length + len(trace.written)) :] + trace.written


def places(ids: Sequence[Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and id [N] of all ids of all rows, to index logits [B, V] with."""
    lengths = torch.tensor([len(own) for own in ids])
    rows = torch.arange(len(ids)).repeat_interleave(lengths)
    return rows.to(device), torch.cat([*ids]).to(device)
