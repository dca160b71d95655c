"""DRY, "don't repeat yourself": the longer a repetition has become, the less likely its next token.

As in llama.cpp (`llama_sampler_dry`) and text-generation-webui (p-e-w, pull request 5677).

Axes: B batch, V vocabulary, M tokens looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.decode.filters.places import MOST, tail, tensor_of
from transpect.decode.trace import Trace


@dataclass(frozen=True)
class Dry:
    """How repetitions of one row are held against.

    Attributes:
        multiplier: what a repetition costs once it is ``allowed_length`` tokens long.
        base: how many times more for each further token, at least 1.
        allowed_length: how long a repetition costs nothing.
        last_n: how many of the last tokens are looked at; None is all of prompt and output.
        breakers: sequences of ids across which nothing counts as a repetition.
    """

    multiplier: float
    base: float = 1.75
    allowed_length: int = 2
    last_n: int | None = None
    breakers: tuple[tuple[int, ...], ...] = ()


def dry(logits: Tensor, options: Sequence[Dry], traces: Sequence[Trace]) -> Tensor:
    """Subtract multiplier · base^(n − allowed_length) from the logit of each token that would go on with a repetition
    of n ≥ allowed_length tokens, the longest one that it would.

    Let w be the last tokens. The token w[i+1] would go on with a repetition of n tokens, where n is the length of the
    longest common end of w[:i+1] and w, and at most the number of tokens after the last breaker in w. A breaker of one
    token is never penalised.

    Args:
        logits: [B, V], at least float32.
        options: of the rows.
        traces: of the rows.
    """
    out = logits.clone()
    for row, (own, trace) in enumerate(zip(options, traces, strict=True)):
        tokens, lengths = _continued(own, trace)
        if len(tokens):
            exponent = (lengths - own.allowed_length).to(torch.float64)
            cost = (float(own.multiplier) * float(own.base) ** exponent).clamp(max=MOST)
            at = tokens.to(logits.device)
            out[row, at] -= cost.to(logits)
    return out


def _continued(options: Dry, trace: Trace) -> tuple[Tensor, Tensor]:
    """The tokens that go on with a repetition, each once, and the length of its longest."""
    past = len(trace.prompt) + len(trace.written)
    window = tensor_of(tail(trace, past if options.last_n is None else options.last_n))  # [M]
    size = len(window)
    limit = _since_breaker(window, options.breakers)
    allowed = options.allowed_length
    if size < 2 or limit < allowed:
        return tensor_of(), tensor_of()
    # beyond this length the cost no longer grows, so a longer one need not be measured
    limit = min(limit, size, allowed + _levels(options))
    length = torch.zeros(size - 1, dtype=torch.int64)  # of the common end at each place
    alive = torch.arange(size - 1)
    for n in range(limit):
        alive = alive[alive >= n]
        alive = alive[window[alive - n] == window[size - 1 - n]]
        if not len(alive):
            break
        length[alive] = n + 1
    goes_on = length >= allowed
    tokens, which = torch.unique(window[1:][goes_on], return_inverse=True)
    longest = torch.zeros_like(tokens).scatter_reduce_(0, which, length[goes_on], "amax")
    alone = torch.tensor([own[0] for own in options.breakers if len(own) == 1], dtype=torch.int64)
    free = ~torch.isin(tokens, alone)
    return tokens[free], longest[free]


def _levels(options: Dry) -> int:
    """How many tokens it takes for the cost to grow from its least to `MOST`."""
    growth = math.log(options.base)
    room = math.log(MOST) - math.log(options.multiplier)
    return max(0, math.ceil(min(room / growth, 1e6))) if growth > 0 else 0


def _since_breaker(window: Tensor, breakers: Sequence[tuple[int, ...]]) -> int:
    """How many tokens stand after the last breaker."""
    since = len(window)
    singles = torch.tensor([own[0] for own in breakers if len(own) == 1], dtype=torch.int64)
    found = [(torch.isin(window, singles), 1)] if len(singles) else []
    for own in breakers:
        if 1 < len(own) <= len(window):
            found.append(((window.unfold(0, len(own), 1) == tensor_of(own)).all(-1), len(own)))
    for matches, width in found:
        at = matches.nonzero()
        if len(at):
            since = min(since, len(window) - int(at[-1]) - width)
    return since
