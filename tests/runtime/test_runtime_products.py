"""Products with integers are those of the numbers that the integers stand for: all formats, widths and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from transpect.base.errors import ConfigError
from transpect.runtime.compiling import compiled
from transpect.runtime.products import Digits, Int8Rows, Words, plain, quantise
from transpect.runtime.products.cpu import lines
from transpect.runtime.products.digits import emit_digits
from transpect.runtime.products.pairs import with_vectors
from transpect.runtime.products.quantising import LARGEST
from transpect.runtime.products.wide import emit_words

Array = Any
WIDTHS = (1, 17, 63, 64, 65, 127, 128, 129, 576, 2048, 4100)


def _ways() -> dict[str, tuple[type, Any]]:
    """Of every line that this machine has: how rows are kept in 16 bits, and the product with them."""
    ways: dict[str, tuple[type, Any]] = {
        f"plain-{kind.__name__}": (kind, compiled(plain.int8_rows)) for kind in (Digits, Words)
    }
    for each in lines():
        if each.width:
            ways[f"{each.name}-Digits"] = Digits, compiled(with_vectors("Digits", emit_digits, each))
        if each.wide is not None:
            ways[f"{each.name}-Words"] = Words, compiled(with_vectors("Words", emit_words, each))
    return ways


WAYS = _ways()
every_way = pytest.mark.parametrize("way", WAYS)


@njit(nogil=True)
def to_integers(x: Array, width: int, first: int, last: int, to: Any) -> None:
    quantise(x, width, first, last, to)


def product(way: str, w: Any, x: Any, rows: int, out: Array) -> None:
    """w[0] and w[1] with so many rows: out [2, R]."""
    WAYS[way][1](w, 0, w, 1, x, 0, rows, out)


def rows_of(width: int, seed: int = 0) -> Array:
    """Eight rows of several sizes, with room behind; one is zeros and one as large in one place as it may be."""
    x = np.random.default_rng(seed).standard_normal((8, width + 16)).astype(np.float32)
    x *= np.float32(10.0) ** np.arange(-4, 4, dtype=np.float32)[:, None]
    x[2], x[5, 0] = 0, 1e30
    return x


def integers_of(way: str, x: Array, width: int) -> Any:
    to = WAYS[way][0].of(8, width)  # type: ignore[attr-defined]
    to_integers(x, width, 0, 8, to)
    return to


def signed(x: Any) -> Array:
    """With the room behind."""
    return x.value.astype(np.int64) if isinstance(x, Words) else 256 * x.high.astype(np.int64) + x.low - 32768


@every_way
@pytest.mark.parametrize("width", WIDTHS)
def test_integers_are_the_nearest_of_16_bits(way: str, width: int) -> None:
    x = rows_of(width)
    to = integers_of(way, x, width)
    found = signed(to)
    back = found[:, :width] * to.scale[:, None].astype(np.float64)
    assert (abs(back - x[:, :width]) <= to.scale[:, None] * 0.501).all()
    own = abs(found[:, :width])
    largest, together = own.max(1), own.sum(1)
    assert (together <= 2**24).all() and ((largest == LARGEST) | (together >= 0.99 * 2**24) | (np.arange(8) == 2)).all()
    assert not found[2, :width].any()
    assert all(not part[:, width:].any() for part in to if part.ndim == 2)


@every_way
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(way: str, broken: float) -> None:
    x = rows_of(576)
    x[3, 100] = broken
    to = integers_of(way, x, 576)
    out = np.zeros(64, np.float32)
    product(way, int8(2, 576), to, 8, out)
    assert (~np.isfinite(out[:16].reshape(2, 8))).tolist() == [[r == 3 for r in range(8)]] * 2


@pytest.mark.parametrize("kind", [Digits, Words])
def test_a_share_of_rows_leaves_the_others(kind: Any) -> None:
    to = kind.of(8, 64)
    to[0][:], to.scale[:] = 7, 7
    to_integers(rows_of(64), 64, 2, 5, to)
    assert (to.scale == 7).tolist() == [True, True, False, False, False, True, True, True]
    assert (to[0][[0, 1, 5, 6, 7]] == 7).all()


def int8(n: int, width: int, seed: int = 1) -> Int8Rows:
    generator = np.random.default_rng(seed)
    weight = generator.integers(-128, 128, (n, width), dtype=np.int8)
    weight[0, : width // 2] = -128
    return Int8Rows.of(weight, generator.random(n, np.float32))


@every_way
@pytest.mark.parametrize("width", WIDTHS)
def test_int8_rows_are_exact(way: str, width: int) -> None:
    """One rounding of an exact sum of integers, and the same for every number of rows."""
    x, w = integers_of(way, rows_of(width), width), int8(2, width)
    exact = w.weight.astype(np.int64) @ signed(x)[:, :width].T
    expected = (exact * (w.scale.astype(np.float64)[:, None] * x.scale)).astype(np.float32)
    for rows in (1, 4, 8):
        out = np.zeros(64, np.float32)
        product(way, w, x, rows, out)
        assert np.array_equal(out[: 2 * rows].reshape(2, rows), expected[:, :rows])
        assert not out[2 * rows :].any()


@every_way
@pytest.mark.parametrize("width", [2048 + 15, 4096 + 16, 65536])
def test_no_sum_leaves_its_bits(way: str, width: int) -> None:
    """Of the largest numbers there are."""
    x = np.full((8, width + 16), 1.0, np.float32)
    x[1::2, ::2] = -1.0
    weight = np.full((2, width), -128, np.int8)
    weight[1, ::2] = 127
    out, to = np.zeros(64, np.float32), integers_of(way, x, width)
    w = Int8Rows.of(weight, np.ones(2, np.float32))
    product(way, w, to, 8, out)
    back = signed(to)[:, :width] * to.scale[:, None].astype(np.float64)
    assert np.allclose(back, x[:, :width], rtol=0, atol=3e-3)
    assert np.allclose(out[:16].reshape(2, 8), weight.astype(np.float64) @ back.T, rtol=1e-6)


def test_rows_that_are_too_long_are_refused() -> None:
    with pytest.raises(ConfigError, match="65536 columns"):
        Int8Rows.of(np.zeros((2, 65537), np.int8), np.ones(2, np.float32))
