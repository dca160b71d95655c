"""Continuations of beams: what each is worth, the best of them, or some that are drawn.

Axes: N rows of the model, V vocabulary, k continuations of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from transpect.decode.sampling import Sampler, uniform
from transpect.decode.trace import Trace

COLDEST = 1e-200
"""A temperature below counts as this one: no sum of beams that are drawn then leaves the numbers of float64."""

IMPOSSIBLE = -1e9
"""What ln 0 counts as where a ban leaves only tokens of probability 0: below all that is possible, but a number."""


def worth(logprobs: Tensor, traces: Sequence[Trace], sampler: Sampler, *, renormalize: bool = False) -> Tensor:
    """What each token adds to the sum of its beam, [N, V]; −inf where it may not come.

    That is its log-probability after penalties, biases and bans; in a row that samples divided by the temperature, in
    float64, and −inf too where a filter takes the token out.

    Args:
        logprobs: by the model itself, [N, V].
        traces: the past of each row.
        sampler: of the rows.
        renormalize: whether the tokens that may come share a probability of 1 again.
    """
    held = _held(logprobs, traces, sampler)
    return held.log_softmax(-1) if renormalize else held


def _held(logprobs: Tensor, traces: Sequence[Trace], sampler: Sampler) -> Tensor:
    held = sampler.process(logprobs, traces)
    nothing = logprobs == -torch.inf
    if bool(nothing.any()):
        held = torch.where(nothing & (held > -torch.inf), IMPOSSIBLE, held)
    if sampler.greedy:
        return held
    temperature = torch.tensor([[row.temperature] for row in sampler.params], dtype=torch.float64, device=held.device)
    left = sampler.filter(logprobs, traces) > -torch.inf
    drawn = torch.where(left, held.double() / temperature.clamp(min=COLDEST), -torch.inf)
    return torch.where(temperature > 0, drawn, held.double())


def best(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best tokens of each row and their scores [N, k] in any order; of equal scores the lower ids."""
    if k >= scores.shape[-1]:
        return scores.topk(scores.shape[-1], dim=-1)
    values, tokens = scores.topk(k + 1, dim=-1)
    # where the next one is equal to the last, topk takes any of them
    ties = (values[:, k] == values[:, k - 1]) & (values[:, k] > -torch.inf)
    if bool(ties.any()):
        ordered = scores[ties].sort(dim=-1, descending=True, stable=True)
        values[ties], tokens[ties] = ordered.values[:, : k + 1], ordered.indices[:, : k + 1]
    return values[:, :k], tokens[:, :k]


def lowered(scores: Tensor, counts: Mapping[int, int], penalty: float) -> None:
    """Take ``penalty`` times its count from the scores [N, V] of each token, in place."""
    loss = torch.tensor([penalty * count for count in counts.values()], dtype=scores.dtype, device=scores.device)
    scores[:, list(counts)] -= loss


def drawn(totals: Tensor, count: int, *, seed: int, step: int) -> list[tuple[int, int]]:
    """Continuations by row and token, from softmax of totals [N, V] without replacement: ``count``, or all there are.

    Args:
        seed: of the request.
        step: how many times ``count`` numbers this seed has given before.
    """
    left, found = totals.double().flatten().clone(), list[int]()
    while len(found) < count and bool((left > -torch.inf).any()):
        mass = left.softmax(-1).cumsum(-1)
        level = mass[-1:] * uniform(seed, step * count + len(found))
        found.append(int(torch.searchsorted(mass, level, right=True)))
        left[found[-1]] = -torch.inf
    return [divmod(at, totals.shape[-1]) for at in found]
