"""The few things that numba does not have by itself: its settings for this house, and bfloat16 as the upper half of a
float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
import torch
from numba import njit, types
from numba.extending import intrinsic

Number = Any
"""A float32; numba's types are its own."""


_FREEDOMS = {"reassoc", "contract", "arcp", "nsz"}
"""Sums may be taken in any order, so that they are taken by vectors. NaN and infinity stay what they are."""


def compiled(function: Callable[..., Any]) -> Any:
    """For code of one thread."""
    return _njit(function, parallel=False)


def parallel(function: Callable[..., Any]) -> Any:
    """For code whose `numba.prange` loops are spread over threads."""
    return _njit(function, parallel=True)


def _njit(function: Callable[..., Any], *, parallel: bool) -> Any:
    options: dict[str, Any] = {"fastmath": _FREEDOMS, "nogil": True, "boundscheck": False, "parallel": parallel}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep the code in: a read-only install and no home. Each process compiles anew
        return njit(**options)(function)


def _widen(context: Any, number: Any) -> Any:
    """A stored number as float32: itself, or the bfloat16 whose bits a uint16 holds."""
    if isinstance(number, types.Float):
        return number(number), lambda context, builder, signature, args: args[0]

    def shifted(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = context.get_value_type(types.uint32)
        bits = builder.shl(builder.zext(args[0], word), word(16))
        return builder.bitcast(bits, context.get_value_type(types.float32))

    return types.float32(number), shifted


widen: Any = intrinsic(_widen)

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "relu2", "tanh")
"""The names of `activate`'s kinds by their number."""


@compiled
def activate(kind: int, x: Number) -> Number:
    """One of `ACTIVATIONS` at one number."""
    one, half = np.float32(1.0), np.float32(0.5)
    if kind == 0:
        return max(x, np.float32(0.0))
    if kind == 1:
        return half * x * (one + math.erf(x * np.float32(0.7071067811865476)))
    if kind == 2:
        inner = np.float32(0.7978845608028654) * (x + np.float32(0.044715) * x * x * x)
        return half * x * (one + math.tanh(inner))
    if kind == 3:
        return x / (one + math.exp(-x))
    if kind == 4:
        return max(x, np.float32(0.0)) ** 2
    return math.tanh(x)


def share_threads() -> int:
    """Let numba use as many threads as torch does, if it has them; how many that are."""
    of_torch, config = torch.get_num_threads(), cast(Any, numba.config)
    threads = min(of_torch, int(config.NUMBA_NUM_THREADS))
    numba.set_num_threads(threads)
    torch.set_num_threads(of_torch)  # numba's start has set those of OpenMP, which torch shares
    return threads
