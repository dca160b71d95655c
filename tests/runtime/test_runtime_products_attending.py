"""Attention of one query, piece by piece: against NumPy at every width and count, and to the bit in any parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transpect.runtime.compiling import compiled
from transpect.runtime.products.attending import mixed_of, scores_of, shares_of
from transpect.runtime.products.kernel import address

Array = Any
GENERATOR = np.random.default_rng(5)


@compiled
def scored(query: Array, keys: Array, out: Array) -> None:
    step = 4 * keys.shape[1]
    of_heads = address(out, 0), 4 * out.shape[1], len(query), address(keys, 0), 4 * keys.size
    scores_of((address(query, 0), step, address(keys, 0), step, query.shape[1], len(keys), *of_heads))


@compiled
def mixed(share: Array, values: Array, out: Array) -> None:
    step = 4 * values.shape[1]
    of_heads = address(out, 0), step, len(out), address(values, 0), 4 * values.size
    mixed_of((address(share, 0), 4 * share.shape[1], address(values, 0), step, out.shape[1], len(values), *of_heads))


@compiled
def shared(scores: Array) -> None:
    shares_of((address(scores, 0), len(scores)))


def normal(*shape: int) -> Array:
    return GENERATOR.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("width", [1, 4, 8, 12, 31, 64, 80, 129])
def test_scores_and_sums_at_every_count(width: int) -> None:
    for count, heads in ((1, 1), (7, 2), (8, 3), (9, 1), (16, 4), (29, 5)):
        query, keys, out = normal(heads, width), normal(count, width), np.full((heads + 1, count), 9, np.float32)
        scored(query, keys, out)
        assert np.allclose(out[:heads], query @ keys.T, atol=1e-5 * width) and (out[heads] == 9).all()
        share, total = normal(heads, count), normal(heads, width)
        wanted = total + share @ keys
        mixed(share, keys, total)
        assert np.allclose(total, wanted, atol=1e-5 * count)


def test_no_part_changes_a_bit() -> None:
    """Neither of the keys, nor of the heads."""
    query, keys, share = normal(3, 72), normal(40, 72), normal(3, 40)
    whole, out, again = np.zeros((3, 40), np.float32), np.zeros((3, 72), np.float32), np.zeros((3, 72), np.float32)
    scored(query, keys, whole)
    mixed(share, keys, out)
    for first, last in ((0, 3), (3, 16), (16, 17), (17, 40)):
        for h in range(3):
            part = np.zeros((1, last - first), np.float32)
            scored(query[h : h + 1], keys[first:last], part)
            assert (part[0] == whole[h, first:last]).all()
            mixed(share[h : h + 1, first:last].copy(), keys[first:last], again[h : h + 1])
    assert (out == again).all()


@pytest.mark.parametrize("count", [1, 7, 8, 21, 64])
def test_shares_are_softmax(count: int) -> None:
    scores = 20 * normal(count)
    wanted = np.exp(scores.astype(np.float64) - scores.max())
    shared(scores)
    assert np.allclose(scores, wanted / wanted.sum(), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("place", [0, 5, 8, 20])
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_not_finite_is_not_lost(place: int, broken: float) -> None:
    scores = normal(21)
    scores[place] = broken
    shared(scores)
    assert np.isnan(scores).any()
