"""Weights of 4 bits, eight rows abreast: products are those of the numbers that the bytes stand for, for every format,
number of rows and of outputs, and width; a row gets the same whatever is beside it, and the largest sums fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import gguf
import numpy as np
import pytest
from numba import njit

from transpect.runtime.products import Q4_0, Q4_1, Blocks, Int4Groups, Int4Shifted, quantise
from transpect.runtime.products.abreast import abreast_of
from transpect.runtime.products.cpu import LINES, line

Array = Any
ROOM = 32
"""Rows that there is room for."""
AVX2 = next(each for each in LINES if each.name == "avx2")
OTHERS = (Int4Shifted, Q4_0, Q4_1)
FORMATS = (Int4Groups, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS))
"""Those that take seconds to compile are for the slow tests."""
pytestmark = pytest.mark.skipif(not (line() is AVX2 or line().width == 64), reason="needs AVX2")


@cache
def product_of(kind: type) -> Callable[..., None]:
    made: Callable[..., None] = njit(nogil=True)(abreast_of(AVX2)[kind])
    return made


@njit(nogil=True)
def to_integers(x: Array, width: int, rows: int, to: Any) -> None:
    quantise(x, width, 0, rows, to)


def made(kind: type, n: int, width: int, codes: int | None = None) -> tuple[Any, Array]:
    """Weights of random codes, or all of one, and the numbers that they stand for."""
    generator = np.random.default_rng(n + width)
    packed = generator.integers(0, 256, (n, width // 2), dtype=np.uint8)
    if codes is not None:
        packed[:] = 17 * codes
    scale = generator.standard_normal((n, width // 32)).astype(np.float16)
    if kind in (Q4_0, Q4_1):
        minimum = generator.standard_normal((n, width // 32)).astype(np.float16)
        parts = [own.view(np.uint8).reshape(n, -1, 2) for own in (scale, minimum)[: 1 + (kind is Q4_1)]]
        flat = np.concatenate([*parts, packed.reshape(n, -1, 16)], 2).reshape(n, -1)
        return kind(flat), gguf.quants.dequantize(flat, gguf.GGMLQuantizationType[kind.__name__]).astype(np.float64)
    q = np.stack([packed & 15, packed >> 4], 2).reshape(n, -1, 32).astype(np.float64)
    wide = scale.astype(np.float64)[..., None]
    if kind is Int4Groups:
        return Int4Groups.of(packed, scale), ((q - 8) * wide).reshape(n, -1)
    zero = generator.integers(0, 16, (n, width // 32), dtype=np.uint8)
    return Int4Shifted.of(packed, scale, zero), ((q - zero[..., None]) * wide).reshape(n, -1)


def rows_in_blocks(kind: type, x: Array) -> tuple[Blocks, Array]:
    """Rows in 8 bits, and the numbers that these are."""
    width = x.shape[1]
    to = Blocks.of(ROOM, width, apart=kind in (Int4Groups, Int4Shifted), together=1)
    to_integers(x, width, len(x), to)
    halves = to.value[:, :width].reshape(ROOM, -1, 2, 16)
    values = (halves.swapaxes(2, 3) if to.apart else halves).reshape(ROOM, -1, 32)
    return to, (values * to.scale[:, : width // 32, None].astype(np.float64)).reshape(ROOM, width)


def assert_products(product: Any, w: Any, numbers: Array, x: tuple[Blocks, Array], counts: Any) -> None:
    n, begin = len(numbers), np.random.default_rng(1).standard_normal((ROOM, len(numbers) + 20)).astype(np.float32)
    expected, size = x[1] @ numbers.T + begin[:, :n], abs(x[1]) @ abs(numbers.T) + abs(begin[:, :n])
    # where there is a minimum the parts of a number are larger than it is
    largest = 64 * np.abs(x[1]).sum(1, keepdims=True) * (abs(numbers).max() if n else 0)
    alone = None
    for rows in counts:
        out = begin.copy()
        product(w, 0, n, x[0], rows, out)
        assert (abs(out[:rows, :n] - expected[:rows]) <= 2e-6 * size[:rows] + 2e-9 * largest[:rows] + 1e-30).all()
        assert np.array_equal(out[:rows, n:], begin[:rows, n:])
        alone = out[:1] if alone is None else alone
        assert np.array_equal(out[:1], alone)
        if n > 2:  # from another one on, which lanes are lost to
            part = begin.copy()
            product(w, 1, n - 1, x[0], rows, part)
            assert np.array_equal(part[:rows, 1 : n - 1], out[:rows, 1 : n - 1])
            assert np.array_equal(part[:rows, [0, n - 1]], begin[:rows, [0, n - 1]])


@pytest.mark.parametrize("kind", FORMATS)
def test_every_shape(kind: type) -> None:
    for n, width in ((1, 32), (7, 64), (8, 96), (9, 224), (16, 256), (27, 288), (40, 576)):
        x = np.random.default_rng(width).standard_normal((ROOM, width)).astype(np.float32)
        x *= np.float32(10.0) ** (np.arange(ROOM, dtype=np.float32)[:, None] % 7 - 3)
        x[2], x[3, :32] = 0, 0
        counts = range(1, 33) if width == 224 else (1, 3, 4, 8, 13)
        assert_products(product_of(kind), *made(kind, n, width), rows_in_blocks(kind, x), counts)


@pytest.mark.parametrize("codes", [0, 8, 15])
@pytest.mark.parametrize("kind", FORMATS)
def test_the_largest_sums_fit(kind: type, codes: int) -> None:
    """All products on one side: 16 of 15 · 127 in each lane of 16 bits."""
    x = np.ones((8, 320), np.float32)
    x[1], x[2, ::2], x[3, 16:] = -1, -1, -1
    assert_products(product_of(kind), *made(kind, 24, 320, codes), rows_in_blocks(kind, x), (1, 8))


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(broken: float) -> None:
    x = np.ones((8, 64), np.float32)
    x[3, 40] = broken
    out = np.zeros((ROOM, 32), np.float32)
    with np.errstate(invalid="ignore"):
        rows, _ = rows_in_blocks(Int4Groups, x)
    product_of(Int4Groups)(made(Int4Groups, 9, 64)[0], 0, 9, rows, 8, out)
    assert (~np.isfinite(out[:8, :9])).tolist() == [[r == 3] * 9 for r in range(8)]
