"""What is drawn through each filter follows the distribution that it leaves: χ² on 1e5 draws."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import Tensor

from transpect.decode import GenerationParams, Sampler
from transpect.decode.filters import WARPERS
from transpect.decode.trace import Trace

from .chi_squared import holm, p_value
from .filter_cases import FILTERS, VOCAB, chain, params_of, trace_of

DRAWS = 100_000
CPU = torch.device("cpu")
MANY = [case for case in FILTERS if not case.name.endswith("_p")]
KINDS = {case.name: [case] for case in FILTERS} | {"none": [], "many": MANY}
SEEDS = {name: range(i * DRAWS, (i + 1) * DRAWS) for i, name in enumerate(KINDS)}
"""Fixed before the first run, and different for each kind."""


def asked(name: str) -> tuple[GenerationParams, Trace, Tensor]:
    """Parameters, past, and logits [1, V] of about three nats' spread. None of them is greedy."""
    random = Random(name)
    params, trace = params_of(random, KINDS[name]), trace_of(random)
    while params.greedy or len(trace.written) + 1 == params.max_new_tokens:
        params, trace = params_of(random, KINDS[name]), trace_of(random)
    generator = torch.Generator().manual_seed(random.randrange(99))
    return params, trace, torch.randn(1, VOCAB, generator=generator, dtype=torch.float64)


def drawn(name: str) -> Tensor:
    """Counts [V] of one draw from each of 1e5 requests that differ in their seeds alone."""
    params, trace, logits = asked(name)
    left = Sampler([params], [0], VOCAB, CPU).filter(logits, [trace])
    tokens = Sampler([params] * DRAWS, SEEDS[name], VOCAB, CPU).draw(left.expand(DRAWS, -1), [trace] * DRAWS)
    return torch.bincount(tokens, minlength=VOCAB)


def law(name: str) -> Tensor:
    params, trace, logits = asked(name)
    return torch.tensor(chain(logits[0].tolist(), params, trace), dtype=torch.float64).softmax(-1)


SAMPLERS = ("none", "many", *(one.name for one in WARPERS))


@pytest.mark.parametrize(
    "kinds", [SAMPLERS, pytest.param(tuple(KINDS), marks=pytest.mark.slow)], ids=["samplers", "everything"]
)
def test_draws_follow_what_each_filter_leaves(kinds: tuple[str, ...]) -> None:
    """No rejection at 1 % after Holm."""
    found = {name: p_value(drawn(name), law(name)) for name in kinds}
    assert not holm(found), found


def test_the_test_has_power() -> None:
    """Draws through one filter are not those through none, nor through a little more of it."""
    for name in ("temperature", "typical_p"):
        _, _, logits = asked(name)
        without = logits[0].softmax(-1)
        assert p_value(drawn(name), without) < 1e-4
    tilted = law("none") * (1 + 0.1 * torch.arange(VOCAB) / VOCAB)
    assert p_value(drawn("none"), tilted / tilted.sum()) < 1e-4
