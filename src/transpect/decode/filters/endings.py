"""Sequences of tokens that are looked for at the end of what has been written: which token would complete one?

Axes: B batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from transpect.decode.filters.places import MOST, tail
from transpect.decode.trace import Trace


class Endings:
    """Sequences by what stands before their last token, so that a look-up takes a step for each length, not for each
    sequence.

    Args:
        weights: each sequence, at least one token long, and what its completion weighs.
    """

    def __init__(self, weights: Iterable[tuple[Sequence[int], float]]) -> None:
        self._after: dict[int, dict[tuple[int, ...], dict[int, float]]] = {}
        for ids, weight in weights:
            *before, last = ids
            lasts = self._after.setdefault(len(before), {}).setdefault(tuple(before), {})
            lasts[last] = weight

    def completed(self, trace: Trace) -> dict[int, float]:
        """The tokens that would complete a sequence, and the sum of what they weigh."""
        found: dict[int, float] = {}
        for length, lasts in self._after.items():
            for last, weight in lasts.get(tail(trace, length), {}).items():
                found[last] = found.get(last, 0.0) + weight
        return found


def sequence_bias(logits: Tensor, biases: Sequence[Endings], traces: Sequence[Trace]) -> Tensor:
    """Add to the logit of each token that would complete a sequence the bias of that sequence; of several, their sum.

    Args:
        logits: [B, V], at least float32.
        biases: the sequences of each row.
        traces: of the rows.
    """
    out = logits.clone()
    for row, (own, trace) in enumerate(zip(biases, traces, strict=True)):
        found = own.completed(trace)
        if found:
            ids, bias = torch.tensor([*found], device=logits.device), torch.tensor([*found.values()])
            out[row, ids] += bias.clamp(-MOST, MOST).to(logits)
    return out


def logit_bias(logits: Tensor, bias: Tensor) -> Tensor:
    """Add a bias to the logits of some tokens (OpenAI's API).

    Args:
        logits: [B, V], at least float32; −inf stays.
        bias: [B, V], 0 elsewhere.
    """
    return logits + bias.clamp(-MOST, MOST).to(logits.dtype)
