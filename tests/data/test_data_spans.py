"""Random spans: all of them of the total asked for, and every arrangement as likely as any other."""

from collections import Counter
from itertools import combinations
from math import exp, factorial, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.data.spans import composition, lengths_of, poisson, rounded, scattered, shares


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def alike(counts: Counter[tuple[int, ...]], n_kinds: int) -> bool:
    """χ² of equal chances within 5 standard deviations of its mean."""
    mean = sum(counts.values()) / n_kinds
    chi2 = sum((counts[key] - mean) ** 2 / mean for key in counts) + (n_kinds - len(counts)) * mean
    return abs(chi2 - (n_kinds - 1)) < 5 * sqrt(2 * n_kinds)


@settings(max_examples=40)
@given(total=st.integers(1, 60), parts=st.integers(1, 60), seed=st.integers(0, 9))
def test_a_composition_adds_up(total: int, parts: int, seed: int) -> None:
    parts = min(parts, total)
    found = composition(total, parts, rng(seed))
    assert len(found) == parts
    assert found.min() >= 1
    assert found.sum() == total


def test_nothing_is_one_part_of_nothing() -> None:
    assert composition(0, 1, rng()).tolist() == [0]


def test_every_composition_is_as_likely_as_any_other() -> None:
    generator = rng()
    counts = Counter(tuple(composition(7, 3, generator).tolist()) for _ in range(6000))
    assert set(counts) == {(a, b, 7 - a - b) for a in range(1, 6) for b in range(1, 7 - a)}
    assert alike(counts, 15)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 5), max_size=8), st.integers(0, 20), st.integers(0, 9))
def test_scattered_spans_lie_apart_in_their_order(lengths: list[int], free: int, seed: int) -> None:
    total = sum(lengths) + free
    starts = scattered(np.array(lengths, np.int64), total, rng(seed)).tolist()
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    assert all(a <= b for a, b in zip(ends, starts[1:], strict=False))
    assert all(0 <= start <= end <= total for start, end in zip(starts, ends, strict=True))


@pytest.mark.parametrize("lengths", [(2, 1), (0, 3), (1, 0, 1)])
def test_every_arrangement_is_as_likely_as_any_other(lengths: tuple[int, ...]) -> None:
    generator, total = rng(1), 6
    counts = Counter(tuple(scattered(np.array(lengths), total, generator).tolist()) for _ in range(6000))
    assert alike(counts, len(list(combinations(range(total - sum(lengths) + len(lengths)), len(lengths)))))


@settings(max_examples=40)
@given(st.integers(0, 40), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(0, 9))
def test_lengths_add_up(total: int, weights: list[float], seed: int) -> None:
    by = shares((*weights, 0.5))
    found = lengths_of(total, by, rng(seed))
    assert found.sum() == total
    allowed = {length for length, weight in enumerate((*weights, 0.5)) if weight}
    assert sum(length not in allowed for length in found.tolist()) <= 1  # the one that was cut


@pytest.mark.parametrize("mean", [0.3, 3.0, 12.0])
def test_poisson(mean: float) -> None:
    chances = np.diff(np.concatenate([[0], poisson(mean)]))
    expected = [exp(-mean) * mean**k / factorial(k) for k in range(min(len(chances), 40))]
    np.testing.assert_allclose(chances[:40], expected, atol=1e-12)


def test_rounding_keeps_the_mean() -> None:
    generator = rng()
    found = [rounded(2.3, generator) for _ in range(4000)]
    assert set(found) == {2, 3}
    assert abs(np.mean(found) - 2.3) < 4.5 * sqrt(0.21 / 4000)
    assert {rounded(4.0, generator) for _ in range(50)} == {4}
