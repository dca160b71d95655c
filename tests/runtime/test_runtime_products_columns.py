"""Products by tiles are products: all vectors, stored numbers, counts of rows, outputs and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from transpect.runtime.compiling import OPTIONS
from transpect.runtime.products.columns import EIGHT, ROOM, columns_of

Array = Any
MOST = 32


def stored(numbers: Array, kind: str) -> tuple[Array, Array]:
    """Weights as they are kept, and what they are."""
    if kind == "float32":
        return numbers, numbers
    bits = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize(("lanes", "kind"), [(4, "float32"), (8, "bfloat16"), (16, "float32")])
def test_products_by_tiles(lanes: int, kind: str) -> None:
    add = njit(**OPTIONS)(columns_of(lanes))
    draw = np.random.default_rng(3)
    for width in (1, 2, 15, 17, 64, ROOM // MOST + 3, 2 * ROOM // MOST + 1):
        weights, numbers = stored(draw.standard_normal((40, width)).astype(np.float32), kind)
        for rows in {min(rows, MOST) for rows in (1, lanes - 1, lanes, lanes + 1, 2 * lanes, 2 * lanes + 1, MOST)}:
            x = draw.standard_normal((MOST, width + 5)).astype(np.float32)
            x[rows:] = np.inf  # what lies there is nobody's
            for first, last in ((0, 40), (EIGHT, 2 * EIGHT), (3, 3 + 3 * EIGHT), (5, 5)):
                out = draw.standard_normal((MOST, 43)).astype(np.float32)
                expected = out.astype(np.float64)
                expected[:rows, first:last] += x[:rows, :width].astype(np.float64) @ numbers[first:last].T
                add(weights, first, last, x, rows, out)
                np.testing.assert_allclose(out[:rows], expected[:rows], rtol=0, atol=2e-5 * max(1, width**0.5))
