"""Rows of float32 to the integers that products compute with.

Axes: R rows, D width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic as _untyped_intrinsic

from transpect.runtime.compiling import compiled
from transpect.runtime.numeric import Number
from transpect.runtime.products.formats import LINE, Digits
from transpect.runtime.products.kernel import chosen_by_types, class_of

_intrinsic: Any = _untyped_intrinsic
Array = Any
_ROUND = np.float32(1.5 * 2**23)
"""Added to a small number, it leaves the nearest integer in the lowest bits."""
_LEAST = np.float32(2.0**-100)
"""A row whose numbers are all smaller is zeros: the reciprocal of its scale would be infinite."""


def _same_bits(wanted: Any) -> Any:
    def reinterpret(context: Any, number: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(wanted))

        return wanted(number), emit

    return _intrinsic(reinterpret)


_bits, _float = _same_bits(types.int32), _same_bits(types.float32)


@compiled
def _largest(x: Array) -> Number:
    """max |x|, NaN if there is one: as integers their bits are larger than those of infinity."""
    most = np.int32(0)
    for d in range(len(x)):
        most = max(most, np.int32(_bits(x[d]) & np.int32(0x7FFFFFFF)))
    return _float(most)


def _to_digits(x: Array, width: int, first: int, last: int, to: Any) -> None:
    end = (width + LINE - 1) // LINE * LINE
    for r in range(first, last):
        own, high, low = x[r, :width], to.high[r], to.low[r]
        most = _largest(own)
        empty = most < _LEAST
        to.scale[r] = np.float32(0.0) if empty else most / np.float32(32767.0)
        factor = np.float32(0.0) if empty else np.float32(32767.0) / most
        for d in range(width):
            number = np.uint32(_bits(np.float32(own[d] * factor + _ROUND))) + np.uint32(32768)
            high[d] = np.uint8(number >> np.uint32(8))
            low[d] = np.uint8(number)
        high[width:end] = 0
        low[width:end] = 0


def quantise(x: Array, width: int, first: int, last: int, to: Any) -> None:
    """Rows first..last of x [R, ≥ D] to integers, each number to the nearest one; for compiled code.

    A row that holds NaN or infinity gives results that are not finite.
    """
    raise NotImplementedError("for compiled code")


_KINDS: dict[type | None, Any] = {Digits: _to_digits}
chosen_by_types(quantise, lambda x, width, first, last, to: _KINDS.get(class_of(to)))
