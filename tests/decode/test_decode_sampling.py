"""The noise is uniform and belongs to the request; the choice follows the filtered distribution."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.base.errors import GenerationError
from transpect.decode import GenerationParams, Sampler, uniform
from transpect.decode.sampling import LONG, check_minimum, totalled

from .chi_squared import holm, p_value
from .conftest import after

CPU = torch.device("cpu")


def sampler(rows: int, vocab: int = 4, first_seed: int = 0, **params: Any) -> Sampler:
    return Sampler([GenerationParams(**params)] * rows, range(first_seed, first_seed + rows), vocab, CPU)


# the noise


def noise_tests() -> dict[str, Tensor]:
    """Bins that should be equally full: 1e5 numbers each."""
    of_one = torch.tensor([uniform(11, step) for step in range(100_000)], dtype=torch.float64)
    of_many = torch.tensor([uniform(seed, 0) for seed in range(100_000)], dtype=torch.float64)
    tens_one, tens_many = (of_one * 10).long(), (of_many * 10).long()
    return {
        "one seed": (of_one * 100).long(),
        "many seeds": (of_many * 100).long(),
        "one seed, pairs": tens_one[::2] * 10 + tens_one[1::2],
        "neighbouring seeds, pairs": tens_many[::2] * 10 + tens_many[1::2],
        "low bits": (of_one * 2**53).long() % 100,
    }


def test_noise_is_uniform_and_independent() -> None:
    found = {name: torch.bincount(bins, minlength=100) for name, bins in noise_tests().items()}
    assert not holm({name: p_value(counts, torch.full((100,), 0.01)) for name, counts in found.items()})


def test_noise_is_a_function_of_seed_and_step() -> None:
    assert [uniform(1, 0), uniform(1, 1), uniform(2, 0)] == [
        0.6433086369179283,
        0.9228542251934198,
        0.40903647971922485,
    ]
    assert uniform(-1, 3) == uniform(2**64 - 1, 3)
    assert 0 <= min(uniform(s, 0) for s in range(2000)) < max(uniform(s, 0) for s in range(2000)) < 1


# the choice

BASE = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
UNEVEN = torch.arange(1, 31, dtype=torch.float64) / 465

DRAWS: dict[str, tuple[Tensor, dict[str, Any], Tensor]] = {
    "plain": (BASE, {}, BASE),
    "uneven": (UNEVEN, {}, UNEVEN),
    "temperature": (BASE, {"temperature": 0.5}, BASE**2 / (BASE**2).sum()),
    "hot": (UNEVEN, {"temperature": 2.0}, UNEVEN.sqrt() / UNEVEN.sqrt().sum()),
    "top_k": (BASE, {"top_k": 3}, torch.tensor([4, 2, 1, 0]) / 7),
    "top_p": (BASE, {"top_p": 0.75}, torch.tensor([2, 1, 0, 0]) / 3),
    "top_k and top_p": (BASE, {"top_k": 3, "top_p": 0.8}, torch.tensor([2, 1, 0, 0]) / 3),
    "temperature and top_p": (BASE, {"temperature": 0.5, "top_p": 0.9}, torch.tensor([4, 1, 0, 0]) / 5),
}


def drawn(probability: Tensor, params: dict[str, Any], rows: int = 1000, steps: int = 100) -> Tensor:
    """Counts of 1e5 draws: ``rows`` requests with seeds of their own, ``steps`` tokens each."""
    chooser = sampler(rows, len(probability), first_seed=5, **{"temperature": 1.0, **params})
    logits = probability.log().float().expand(rows, -1)
    tokens = torch.cat([chooser.choose(logits, after(step, rows)).token for step in range(steps)])
    return torch.bincount(tokens, minlength=len(probability))


def test_choices_follow_the_distribution() -> None:
    """χ² on 1e5 draws for each chain of filters; no rejection at 1 % after Holm."""
    found = {name: p_value(drawn(probability, params), law) for name, (probability, params, law) in DRAWS.items()}
    assert not holm(found)


def test_the_test_of_choices_has_power() -> None:
    counts = drawn(BASE, {})
    assert p_value(counts, torch.tensor([0.49, 0.25, 0.13, 0.13])) < 1e-4
    assert p_value(drawn(BASE, {"temperature": 1.05}), BASE) < 1e-4


def test_temperature_zero_is_the_first_best_token() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    assert sampler(2).choose(logits, after(0, 2)).token.tolist() == [1, 0]
    mixed = Sampler([GenerationParams(), GenerationParams(temperature=1.0)], [0, 1], 4, CPU)
    for step in range(50):
        assert mixed.choose(logits, after(step, 2)).token[0] == 1


@pytest.mark.parametrize("off", [{"top_k": 0}, {"top_k": 1}, {"top_p": 0.0}, {"temperature": 1e-300}], ids=repr)
def test_zero_is_a_value(off: dict[str, Any]) -> None:
    """Each of these leaves the best token; none divides by 0, masks everything or means `off`."""
    logits = torch.tensor([[0.0, 1.0, 0.9, -1.0]]).expand(500, -1)
    assert (sampler(500, **{"temperature": 1.0, **off}).choose(logits, after(0, 500)).token == 1).all()


def test_a_row_chooses_the_same_wherever_it_stands() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    params = [GenerationParams(temperature=t, top_k=k, top_p=p) for t, k, p in [(1.0, None, 1.0), (0.7, 8, 0.9)] * 3]
    whole = Sampler(params, range(6), 50, CPU)
    for step in range(20):
        together = whole.choose(logits, after(step, 6)).token.tolist()
        turned = whole.rows([4, 0, 5]).choose(logits[[4, 0, 5]], after(step, 3)).token.tolist()
        alone = [whole.rows([i]).choose(logits[[i]], after(step, 1)).token.item() for i in range(6)]
        assert together == alone
        assert turned == [alone[4], alone[0], alone[5]]


def test_the_highest_noise_draws_a_token_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the sum of the probabilities is rounded: above 1, the noise times the sum may be the sum."""
    monkeypatch.setattr("transpect.decode.sampling.uniform", lambda seed, step: 1 - 2.0**-53)
    logits = torch.randn(200, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[:, 40:] = -math.inf
    assert (logits.softmax(-1).cumsum(-1)[:, -1] > 1).any()
    assert (sampler(200, 50).draw(logits, after(0, 200)) < 40).all()


def test_logprobs_are_the_models_own() -> None:
    logits = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    rows = Sampler([GenerationParams(temperature=0.3, top_k=2)] * 3, [1, 2, 3], 9, CPU)
    choice = rows.choose(logits, after(0, 3))
    assert torch.allclose(choice.logprob, logits.log_softmax(-1).gather(1, choice.token[:, None])[:, 0], atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_end_waits_for_the_minimum(temperature: float) -> None:
    """Even where the model is certain of an end, and the other tokens have −inf."""
    certain = torch.tensor([[-math.inf, 0.0, -math.inf, -math.inf]])
    row = Sampler([GenerationParams(min_new_tokens=2, eos_ids=(1, 3), temperature=temperature)], [0], 4, CPU)
    tokens = [row.choose(certain, after(step, 1)).token.item() for step in range(4)]
    assert set(tokens[:2]) <= {0, 2}
    assert tokens[2:] == [1, 1]


def test_a_minimum_needs_a_token_that_is_no_end() -> None:
    for ends in ((0, 1), (1, 0, 1, 7)):
        with pytest.raises(GenerationError, match="min_new_tokens"):
            check_minimum(GenerationParams(min_new_tokens=1, eos_ids=ends), 2)
    for ends in ((), (0,), (0, 0), (0, 2), (1, 2, 3)):
        check_minimum(GenerationParams(min_new_tokens=1, eos_ids=ends), 2)
    check_minimum(GenerationParams(eos_ids=(0, 1)), 2)
    check_minimum(GenerationParams(min_new_tokens=1, eos_ids=(0, 1), ignore_eos=True), 2)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]], ids=str)
def test_logits_that_are_no_numbers_are_refused(bad: list[float], temperature: float) -> None:
    logits = torch.tensor([[0.0, 1.0], bad])
    with pytest.raises(GenerationError, match="logits"):
        sampler(2, 2, temperature=temperature).choose(logits, after(0, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_draws_from_its_own_distribution(dtype: torch.dtype) -> None:
    logits = torch.randn(1, 20, generator=torch.Generator().manual_seed(1)).to(dtype)
    rows = sampler(20_000, 20, temperature=1.0)
    tokens = rows.choose(logits.expand(20_000, -1), after(0, 20_000)).token
    assert p_value(torch.bincount(tokens, minlength=20), logits[0].double().softmax(-1)) > 0.001


def test_the_best_of_a_long_vocabulary_is_what_all_steps_give() -> None:
    logits = torch.randn(3, LONG + 5, generator=torch.Generator().manual_seed(1))
    logits[1, [7, 70]] = logits[1].max() + 1
    plain = sampler(3, LONG + 5, temperature=0.0)
    found, (wide, total) = plain.choose(logits, after(0, 3)), totalled(logits)
    assert found.token.tolist() == wide.argmax(-1).tolist() and found.token[1] == 7
    assert torch.equal(found.logprob, wide.gather(-1, found.token[:, None])[:, 0] - total)
    for broken in (float("nan"), float("inf")):
        logits[2, 9] = broken
        with pytest.raises(GenerationError, match="must be numbers"):
            plain.choose(logits, after(0, 3))


def test_rules_are_all_there_is_or_none() -> None:
    assert sampler(2, banned=(1,), temperature=0.0).rules is not None
    assert sampler(2, repetition_penalty=1.1, temperature=0.0).rules is None
    assert sampler(2, no_repeat_ngram_size=2, temperature=0.0).rules is None
