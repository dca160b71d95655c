"""Each filter against its definition spelled out row by row in Python, over dtypes, ties and rows that differ."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from transpect.decode import filters

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
VOCAB = 40


def logits_of(kind: str, dtype: torch.dtype, rows: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    noise = torch.randn(rows, VOCAB, generator=generator, dtype=torch.float64) * 2
    if kind == "ties":
        noise = noise.round()
    if kind == "flat":
        noise = torch.zeros_like(noise)
    if kind == "holes":
        noise[torch.rand(noise.shape, generator=generator) < 0.5] = -math.inf
        noise[:, 3] = 0.0
    if kind == "one left":
        noise[:] = -math.inf
        noise[:, 5] = 1.0
    return noise.to(dtype)


def ranked(row: list[float]) -> list[int]:
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


def slow_top_k(row: list[float], k: int) -> set[int]:
    return {i for i in ranked(row)[: max(k, 1)] if row[i] > -math.inf}


def slow_top_p(row: list[float], p: float) -> set[int]:
    total = math.fsum(math.exp(x - max(row)) for x in row)
    kept: list[int] = []
    for i in ranked(row):
        reached = math.fsum(math.exp(row[j] - max(row)) / total for j in kept)
        if kept and p < 1 and reached >= p - 1e-6:
            break
        kept.append(i)
    return {i for i in kept if row[i] > -math.inf}


def survivors(logits: Tensor) -> list[set[int]]:
    return [{i for i, x in enumerate(row) if x > -math.inf} for row in logits.tolist()]


KINDS = ["random", "ties", "flat", "holes", "one left"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_top_k_leaves_exactly_k(kind: str, dtype: torch.dtype) -> None:
    logits = logits_of(kind, dtype)
    ks = [0, 1, 2, 3, 5, 8, 20, VOCAB - 1, VOCAB, VOCAB + 5, 1, 4]
    out = filters.top_k(logits, torch.tensor(ks))
    rows = logits.double().tolist()
    assert survivors(out) == [slow_top_k(row, k) for row, k in zip(rows, ks, strict=True)]
    unchanged(logits, out)
    if kind in ("random", "ties", "flat"):
        assert [len(s) for s in survivors(out)] == [min(max(k, 1), VOCAB) for k in ks]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_top_p_leaves_the_fewest_that_reach_p(kind: str, dtype: torch.dtype) -> None:
    logits = logits_of(kind, dtype)
    ps = [0.0, 1e-9, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.99, 0.999999, 1.0, 0.3]
    out = filters.top_p(logits, torch.tensor(ps, dtype=torch.float64))
    rows = logits.double().tolist()
    assert survivors(out) == [slow_top_p(row, p) for row, p in zip(rows, ps, strict=True)]
    unchanged(logits, out)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shift", [0.0, 3.7, -250.0])
@pytest.mark.parametrize(("p", "left"), [(0.0, 1), (0.5, 1), (0.75, 2), (0.8, 3), (0.875, 3), (0.9, 4), (1.0, 4)])
def test_case_12_nucleus(p: float, left: int, shift: float, dtype: torch.dtype) -> None:
    """Sums that reach p exactly in mathematics do so here, whatever the rounding of the logits."""
    logits = (torch.tensor([[0.125, 0.5, 0.125, 0.25]], dtype=torch.float64).log() + shift).to(dtype)
    kept = survivors(filters.top_p(logits, torch.tensor([p], dtype=torch.float64)))[0]
    assert kept == set([1, 3, 0, 2][:left])


def test_top_p_of_one_leaves_even_what_rounds_to_nothing() -> None:
    logits = torch.tensor([[0.0, -30.0, -80.0, -700.0]])
    assert survivors(filters.top_p(logits, torch.ones(1)))[0] == {0, 1, 2, 3}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_temperature_divides(kind: str, dtype: torch.dtype) -> None:
    logits = logits_of(kind, dtype)
    values = [1.0, 0.5, 2.0, 0.7, 10.0, 1.3] * 2
    out = filters.temperature(logits, torch.tensor(values))
    assert out.dtype == torch.promote_types(dtype, torch.float32)
    for row, got, value in zip(logits.double(), out.double(), values, strict=True):
        assert torch.allclose(got.softmax(-1), (row / value).softmax(-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0.0, 1e-300, 1e-45, 1e-30, 1e-12])
def test_temperature_towards_zero_leaves_the_best(kind: str, value: float, dtype: torch.dtype) -> None:
    logits = logits_of(kind, dtype)
    out = filters.temperature(logits, torch.full((len(logits),), value, dtype=torch.float64))
    assert not out.isnan().any()
    best = logits.double().amax(-1, keepdim=True) == logits.double()
    share = best.double() / best.sum(-1, keepdim=True)
    if value == 0:  # of equal ones the first
        share = torch.nn.functional.one_hot(best.long().argmax(-1), VOCAB).double()
    assert torch.allclose(out.double().softmax(-1), share, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [1e30, 1e39, 1e300, 1.7e308])
def test_temperature_towards_infinity_leaves_equals(kind: str, value: float, dtype: torch.dtype) -> None:
    logits = logits_of(kind, dtype)
    out = filters.temperature(logits, torch.full((len(logits),), value, dtype=torch.float64))
    left = (logits > -math.inf).double()
    assert torch.allclose(out.double().softmax(-1), left / left.sum(-1, keepdim=True), atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"])
def test_a_cut_keeps_logits_and_their_dtype(name: str, kind: str, dtype: torch.dtype) -> None:
    logits = logits_of(kind, dtype)
    unchanged(logits, getattr(filters, name)(logits, torch.linspace(0, 1, len(logits), dtype=torch.float64)))


@pytest.mark.parametrize("shift", [0.0, 3.7, -250.0])
@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("min_p", 0.0, [0, 1, 2, 3]),
        ("min_p", 0.25, [0, 1, 2, 3]),
        ("min_p", 0.3, [1, 3]),
        ("min_p", 0.5, [1, 3]),
        ("min_p", 1.0, [1]),
        ("typical_p", 0.0, [3]),  # its surprise of 2 bits is the nearest to the entropy of 1.75
        ("typical_p", 0.3, [1, 3]),
        ("typical_p", 0.75, [1, 3]),
        ("typical_p", 0.8, [0, 1, 3]),
        ("typical_p", 1.0, [0, 1, 2, 3]),
        ("epsilon_cutoff", 0.0, [0, 1, 2, 3]),
        ("epsilon_cutoff", 0.125, [0, 1, 2, 3]),
        ("epsilon_cutoff", 0.2, [1, 3]),
        ("epsilon_cutoff", 1.0, [1]),
        ("eta_cutoff", 0.0, [0, 1, 2, 3]),
        ("eta_cutoff", 0.16, [0, 1, 2, 3]),  # 0.4 / 2^1.75 = 0.119
        ("eta_cutoff", 0.25, [1, 3]),  # 0.5 / 2^1.75 = 0.149
        ("eta_cutoff", 1.0, [1]),  # 1 / 2^1.75 = 0.297
    ],
)
def test_cuts_of_a_half_a_quarter_and_two_eighths(name: str, value: float, left: list[int], shift: float) -> None:
    """0 is a value, and what is reached exactly in mathematics is reached here."""
    logits = torch.tensor([[0.125, 0.5, 0.125, 0.25]], dtype=torch.float64).log() + shift
    kept = survivors(getattr(filters, name)(logits, torch.tensor([value], dtype=torch.float64)))[0]
    assert kept == {*left}


def test_rows_mix_temperatures() -> None:
    logits = logits_of("random", torch.float32, rows=3)
    out = filters.temperature(logits, torch.tensor([0.0, 1.0, 0.5]))
    assert len(survivors(out)[0]) == 1
    assert torch.allclose(out[1].softmax(-1), logits[1].softmax(-1), atol=1e-6)
    assert torch.allclose(out[2].softmax(-1), (logits[2] * 2).softmax(-1), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_ban_leaves_another_token(kind: str) -> None:
    logits = logits_of(kind, torch.float32)
    banned = torch.zeros(len(logits), VOCAB, dtype=torch.bool)
    banned[:6, [5, 3]] = True
    out = filters.ban(logits, banned)
    assert torch.equal(out[6:], logits[6:])
    assert (out[:6].softmax(-1)[banned[:6]] == 0).all()
    assert out.softmax(-1).isfinite().all()
    if kind != "one left":
        assert torch.equal(out[~banned], logits[~banned])


def unchanged(before: Tensor, after: Tensor) -> None:
    """What survives keeps its logit."""
    kept = after > -math.inf
    assert after.dtype == before.dtype
    assert torch.equal(after[kept], before[kept])
    assert kept.any(-1).all()
