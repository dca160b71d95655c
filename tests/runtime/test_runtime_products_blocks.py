"""Products over blocks are those of the numbers that the bytes stand for, by numpy and by the package gguf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
import pytest
from numba import njit

from transpect.base.errors import ConfigError
from transpect.runtime.products import (
    Q4_0,
    Q4_1,
    Q4_K,
    Q6_K,
    Q8_0,
    Blocks,
    Int4Groups,
    Int4Shifted,
    Int8Groups,
    activations,
    pair,
    quantise,
)
from transpect.runtime.products.codes import TOGETHER
from transpect.runtime.products.cpu import LINES, line
from transpect.runtime.products.pairs import pairs_of

Array = Any
Made = tuple[Any, Array]
"""Two rows of weights, and the numbers that they stand for."""


def int8_groups(width: int, group: int = 32) -> Made:
    generator = np.random.default_rng(width)
    weight = generator.integers(-128, 128, (2, width), dtype=np.int8)
    scale = generator.random((2, width // group), np.float32)
    return Int8Groups.of(weight, scale), weight * np.repeat(scale, group, 1).astype(np.float64)


def int4_groups(width: int, group: int = 32) -> Made:
    packed, q, scale, _ = int4(width, group)
    return Int4Groups.of(packed, scale), (q - 8) * np.repeat(scale, group, 1).astype(np.float64)


def int4_shifted(width: int, group: int = 32) -> Made:
    packed, q, scale, zero = int4(width, group)
    numbers = (q - np.repeat(zero, group, 1)) * np.repeat(scale, group, 1).astype(np.float64)
    return Int4Shifted.of(packed, scale, zero), numbers


def int4(width: int, group: int) -> tuple[Array, Array, Array, Array]:
    generator = np.random.default_rng(width)
    packed = generator.integers(0, 256, (2, width // 2), dtype=np.uint8)
    q = np.stack([packed & 15, packed >> 4], 2).reshape(2, width).astype(np.int64)
    scale = generator.random((2, width // group)).astype(np.float16)
    return packed, q, scale, generator.integers(0, 16, (2, width // group), dtype=np.uint8)


def of_gguf(kind: type[Any], size: int, columns: int, halves: tuple[int, ...]) -> Callable[[int], Made]:
    """Any bytes, but for the float16 at these places of a block, which are small numbers."""

    def make(width: int) -> Made:
        generator = np.random.default_rng(width)
        packed = generator.integers(0, 256, (2, width // columns, size), dtype=np.uint8)
        for place in halves:
            number = generator.standard_normal((2, width // columns, 1)).astype(np.float16)
            packed[:, :, place : place + 2] = number.view(np.uint8).reshape(2, -1, 2)
        flat = packed.reshape(2, -1)
        return kind(flat), gguf.quants.dequantize(flat, gguf.GGMLQuantizationType[kind.__name__]).astype(np.float64)

    return make


SMALL, LARGE = (32, 64, 96, 128, 160, 224, 576, 1536), (256, 512, 768)
FORMATS: dict[type[Any], tuple[Callable[[int], Made], tuple[int, ...]]] = {
    Int8Groups: (int8_groups, SMALL),
    Int4Groups: (int4_groups, SMALL),
    Int4Shifted: (int4_shifted, SMALL),
    Q8_0: (of_gguf(Q8_0, 34, 32, (0,)), SMALL),
    Q4_0: (of_gguf(Q4_0, 18, 32, (0,)), SMALL),
    Q4_1: (of_gguf(Q4_1, 20, 32, (0, 2)), SMALL),
    Q4_K: (of_gguf(Q4_K, 144, 256, (0, 2)), LARGE),
    Q6_K: (of_gguf(Q6_K, 210, 256, (208,)), LARGE),
}
RUN = [each for each in LINES if each.name in ("avx2", "plain") and (each.name == "plain" or line().width == 64)]
"""What this machine can run besides its own line."""


@njit(nogil=True)
def to_integers(x: Array, width: int, first: int, last: int, to: Any) -> None:
    quantise(x, width, first, last, to)


@njit(nogil=True)
def product(w: Any, i: int, v: Any, j: int, x: Any, start: int, rows: int, out: Array) -> None:
    pair(w, i, v, j, x, start, rows, out)


def rows_of(width: int) -> Array:
    """Eight rows of several sizes with room behind; one is zeros, one lies on one side, one has blocks of zeros."""
    x = np.random.default_rng(0).standard_normal((8, width + 16)).astype(np.float32)
    x *= np.float32(10.0) ** np.arange(-4, 4, dtype=np.float32)[:, None]
    x[2], x[4], x[6, :32] = 0, abs(x[4]) + 1, 0
    return x


def places(width: int, x: Blocks) -> Array:
    """Where each column is."""
    block, inner = np.divmod(np.arange(width), 32)
    half, n = (inner % 2, inner // 2) if x.apart else (inner // 16, inner % 16)
    grouped = block < width // 32 // x.together * x.together
    step, which = np.divmod(block, x.together)
    return np.where(grouped, 32 * x.together * step + 16 * x.together * half + 16 * which, 32 * block + 16 * half) + n


def numbers_of(x: Blocks, width: int) -> Array:
    scale = np.repeat(x.scale[:, : width // 32].astype(np.float64), 32, 1)
    return x.value[:, places(width, x)] * scale


@pytest.mark.parametrize("together", [1, TOGETHER])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("width", SMALL)
def test_blocks_are_the_nearest_of_8_bits(width: int, apart: bool, together: int) -> None:
    x, to = rows_of(width), Blocks.of(8, width, apart=apart, together=together)
    to_integers(x, width, 0, 8, to)
    scale = np.repeat(to.scale[:, : width // 32], 32, 1)
    assert (abs(numbers_of(to, width) - x[:, :width]) <= 0.501 * scale).all()
    sums = numbers_of(to, width).reshape(8, -1, 32).sum(2)
    assert np.allclose(to.total[:, : width // 32], sums, rtol=1e-6, atol=0)
    filled = abs(to.value[:, places(width, to)].astype(int)).reshape(8, -1, 32).max(2)
    assert set(filled[[0, 1, 3, 4, 5, 7]].flat) == {127} and not filled[2].any() and not filled[6, 0]


def assert_product(multiply: Any, kind: type[Any], width: int, together: int) -> None:
    """Equal up to the rounding of float32, and to the last bit whatever the rows."""
    w, numbers = FORMATS[kind][0](width)
    x = Blocks.of(8, width, apart=activations(w, 8).apart, together=together)  # type: ignore[union-attr]
    to_integers(rows_of(width), width, 0, 8, x)
    quantised = numbers_of(x, width)
    expected, size = numbers @ quantised.T, abs(numbers) @ abs(quantised.T)
    whole = np.zeros(64, np.float32)
    multiply(w, 0, w, 1, x, 0, 8, whole)
    found = whole[:16].reshape(2, 8)
    # what is on one side of zero is a difference of larger numbers where a format has minima
    assert (abs(found - expected) <= 2e-6 * size + 1e-30).all(), abs(found - expected) / (size + 1e-30)
    assert not whole[16:].any()
    for rows, start in ((1, 0), (1, 3), (4, 0), (4, 4)):
        out = np.zeros(64, np.float32)
        multiply(w, 1, w, 0, x, start, rows, out)
        assert np.array_equal(out[: 2 * rows].reshape(2, rows), found[::-1, start : start + rows])


@pytest.mark.parametrize("kind", FORMATS)
def test_products(kind: type[Any]) -> None:
    for width in FORMATS[kind][1]:
        assert_product(product, kind, width, activations(FORMATS[kind][0](width)[0], 8).together)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("other", RUN, ids=lambda each: each.name)
def test_other_lines(other: Any, kind: type[Any]) -> None:
    multiply = njit(nogil=True)(pairs_of(other)[kind, Blocks])
    for width in FORMATS[kind][1][-3:]:
        assert_product(multiply, kind, width, 1)


@pytest.mark.parametrize("make", [int8_groups, int4_groups, int4_shifted])
def test_larger_groups(make: Callable[[int, int], Made]) -> None:
    w, numbers = make(256, 64)
    x = activations(w, 8)
    assert isinstance(x, Blocks)
    to_integers(rows_of(256), 256, 0, 8, x)
    out = np.zeros(64, np.float32)
    product(w, 0, w, 1, x, 0, 1, out)
    assert np.allclose(out[:2], numbers @ numbers_of(x, 256)[0], rtol=1e-4)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_not_finite_stays_so(broken: float) -> None:
    w, x = int4_groups(576)[0], rows_of(576)
    x[3, 100] = broken
    to = activations(w, 8)
    to_integers(x, 576, 0, 8, to)
    out = np.zeros(64, np.float32)
    product(w, 0, w, 1, to, 0, 8, out)
    assert (~np.isfinite(out[:16].reshape(2, 8))).tolist() == [[r == 3 for r in range(8)]] * 2


def test_rows_are_whole_blocks() -> None:
    with pytest.raises(ConfigError, match="32 columns"):
        Int8Groups.of(np.zeros((2, 48), np.int8), np.zeros((2, 1), np.float32))
