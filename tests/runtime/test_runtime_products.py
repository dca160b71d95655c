"""Products with integers are those of the numbers that the integers stand for: all formats, widths and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from transpect.base.errors import ConfigError
from transpect.runtime.products import Digits, Int8Rows, pair, quantise

Array = Any
WIDTHS = (1, 17, 63, 64, 65, 127, 128, 129, 576, 1536)


@njit(nogil=True)
def to_integers(x: Array, width: int, first: int, last: int, to: Any) -> None:
    quantise(x, width, first, last, to)


@njit(nogil=True)
def product(w: Any, x: Any, rows: int, out: Array) -> None:
    """w[0] and w[1] with so many rows: out [2, R]."""
    pair(w, 0, w, 1, x, 0, rows, out)


def rows_of(width: int, seed: int = 0) -> Array:
    """Eight rows of several sizes, with room behind; one is zeros and one as large in one place as it may be."""
    x = np.random.default_rng(seed).standard_normal((8, width + 16)).astype(np.float32)
    x *= np.float32(10.0) ** np.arange(-4, 4, dtype=np.float32)[:, None]
    x[2], x[5, 0] = 0, 1e30
    return x


def digits_of(x: Array, width: int) -> Digits:
    to = Digits.of(8, width)
    to.high[:, width:], to.low[:, width:] = 0, 0
    to_integers(x, width, 0, 8, to)
    return to


def signed(x: Digits, width: int) -> Array:
    return 256 * x.high[:, :width].astype(np.int64) + x.low[:, :width] - 32768


@pytest.mark.parametrize("width", WIDTHS)
def test_digits_are_the_nearest_of_16_bits(width: int) -> None:
    x = rows_of(width)
    to = digits_of(x, width)
    back = signed(to, width) * to.scale[:, None].astype(np.float64)
    assert (abs(back - x[:, :width]) <= to.scale[:, None] * 0.501).all()
    assert (abs(signed(to, width)).max(1) == np.where(np.arange(8) == 2, 0, 32767)).all()
    assert not to.high[:, width:].any() and not to.low[:, width:].any()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(broken: float) -> None:
    x = rows_of(576)
    x[3, 100] = broken
    to = digits_of(x, 576)
    out = np.zeros(64, np.float32)
    product(int8(2, 576), to, 8, out)
    assert (~np.isfinite(out[:16].reshape(2, 8))).tolist() == [[r == 3 for r in range(8)]] * 2


def test_a_share_of_rows_leaves_the_others() -> None:
    to = Digits.of(8, 64)
    to.high[:], to.scale[:] = 7, 7
    to_integers(rows_of(64), 64, 2, 5, to)
    assert (to.scale == 7).tolist() == [True, True, False, False, False, True, True, True]
    assert (to.high[[0, 1, 5, 6, 7]] == 7).all()


def int8(n: int, width: int, seed: int = 1) -> Int8Rows:
    generator = np.random.default_rng(seed)
    weight = generator.integers(-128, 128, (n, width), dtype=np.int8)
    weight[0, : width // 2] = -128
    return Int8Rows.of(weight, generator.random(n, np.float32))


@pytest.mark.parametrize("width", WIDTHS)
def test_int8_rows_are_exact(width: int) -> None:
    """One rounding of an exact sum of integers, and the same for every number of rows."""
    x, w = digits_of(rows_of(width), width), int8(2, width)
    exact = w.weight.astype(np.int64) @ signed(x, width).T
    expected = (exact * (w.scale.astype(np.float64)[:, None] * x.scale)).astype(np.float32)
    for rows in (1, 4, 8):
        out = np.zeros(64, np.float32)
        product(w, x, rows, out)
        assert np.array_equal(out[: 2 * rows].reshape(2, rows), expected[:, :rows])
        assert not out[2 * rows :].any()


def test_sums_fit_in_32_bits_or_are_refused() -> None:
    x = np.full((8, 65536 + 16), 1.0, np.float32)
    w = Int8Rows.of(np.full((2, 65536), -128, np.int8), np.ones(2, np.float32))
    out = np.zeros(64, np.float32)
    product(w, digits_of(x, 65536), 8, out)
    assert np.allclose(out[:16], -128 * 65536.0, rtol=1e-6)
    with pytest.raises(ConfigError, match="65536 columns"):
        Int8Rows.of(np.zeros((2, 65537), np.int8), np.ones(2, np.float32))
