"""Filters that make what has been said less likely, or what has been asked more so.

Axes: B batch, V vocabulary, N places.

Each takes one value a row and the row's own past. −inf stays −inf, and a finite logit stays finite.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from transpect.decode.filters.places import HIDDEN, MOST, history, places, read, tensor_of
from transpect.decode.trace import Trace


def repetition_penalty(logits: Tensor, penalty: Tensor, traces: Sequence[Trace]) -> Tensor:
    """Divide the positive logits of tokens in prompt or output by θ, multiply the negative ones (Keskar et al. 2019,
    §4.1). A token counts once, however often it stands there.

    Args:
        logits: [B, V], at least float32.
        penalty: [B], θ > 0; above 1 makes repeating less likely, below 1 more.
        traces: of the rows; of an encoder–decoder the decoder's tokens count, not the source.
    """
    return _divided(logits, penalty, [history(trace) for trace in traces])


def encoder_repetition_penalty(logits: Tensor, penalty: Tensor, traces: Sequence[Trace]) -> Tensor:
    """`repetition_penalty` with 1/θ for the tokens of the source (of a decoder, its prompt): above 1 they become more
    likely, which holds against invention.

    Args:
        logits: [B, V], at least float32.
        penalty: [B], θ > 0.
        traces: of the rows.
    """
    return _divided(logits, 1 / penalty, [tensor_of(read(trace)) for trace in traces])


def presence_penalty(logits: Tensor, penalty: Tensor, traces: Sequence[Trace]) -> Tensor:
    """Subtract α from the logit of each token that stands in the output, not in the prompt (OpenAI's API).

    Args:
        logits: [B, V], at least float32.
        penalty: [B], α; below 0 makes repeating more likely.
        traces: of the rows.
    """
    written = [tuple(set(trace.written)) for trace in traces]
    return _subtracted(logits, penalty, written, [(1,) * len(own) for own in written])


def frequency_penalty(logits: Tensor, penalty: Tensor, traces: Sequence[Trace]) -> Tensor:
    """Subtract α from the logit of a token as often as it stands in the output, not in the prompt (OpenAI's API).

    Args:
        logits: [B, V], at least float32.
        penalty: [B], α; below 0 makes repeating more likely.
        traces: of the rows.
    """
    counts = [Counter(trace.written) for trace in traces]
    return _subtracted(logits, penalty, [tuple(own) for own in counts], [tuple(own.values()) for own in counts])


def exponential_decay_length_penalty(
    logits: Tensor, decay: Sequence[tuple[int, float]], ends: Sequence[Sequence[int]], traces: Sequence[Trace]
) -> Tensor:
    """Raise the logits x of the tokens that end the output, more with each token after the first ``start`` new ones:
    x + |x| (factorⁿ − 1), n the number of tokens since.

    Args:
        logits: [B, V], at least float32.
        decay: (start, factor) of each row.
        ends: the tokens that end each row.
        traces: of the rows.
    """
    out = logits.clone()
    for row, ((start, factor), own, trace) in enumerate(zip(decay, ends, traces, strict=True)):
        since = len(trace.written) - start
        if since > 0 and own:
            growth = math.exp(min(since * math.log(factor), math.log(MOST))) - 1
            ids = torch.tensor(own, device=logits.device)
            end = logits[row, ids]
            out[row, ids] = _bounded(end, end + end.abs() * growth)
    return out


def _divided(logits: Tensor, penalty: Tensor, ids: Sequence[Tensor]) -> Tensor:
    rows, tokens = places(ids, logits.device)
    before = logits[rows, tokens]  # [N]
    own = penalty.to(logits.dtype).clamp(1 / MOST, MOST)[rows]
    out = logits.clone()
    # a token that stands there twice is written twice, with one value
    out[rows, tokens] = _bounded(before, torch.where(before < 0, before * own, before / own))
    return out


def _subtracted(
    logits: Tensor, penalty: Tensor, ids: Sequence[tuple[int, ...]], times: Sequence[tuple[int, ...]]
) -> Tensor:
    """The ids of a row are different ones."""
    rows, tokens = places([tensor_of(own) for own in ids], logits.device)
    count = tensor_of(*times).to(logits.device)
    before = logits[rows, tokens]
    out = logits.clone()
    out[rows, tokens] = _bounded(before, before - (penalty[rows] * count).clamp(-MOST, MOST).to(logits.dtype))
    return out


def _bounded(before: Tensor, after: Tensor) -> Tensor:
    return torch.where(before == HIDDEN, before, after.clamp(-MOST, MOST))
