"""The few things that numba does not have by itself: bfloat16 as the upper half of a float32, and functions that turn
into vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from transpect.runtime.compiling import compiled, intrinsic

Array = Any
Number = Any
"""A float32; numba's types are its own."""


@intrinsic
def widen(context: Any, number: Any) -> Any:
    """A stored number as float32: itself, or the bfloat16 whose bits a uint16 holds."""
    if isinstance(number, types.Float):
        return number(number), lambda context, builder, signature, args: args[0]

    def shifted(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = context.get_value_type(types.uint32)
        bits = builder.shl(builder.zext(args[0], word), word(16))
        return builder.bitcast(bits, context.get_value_type(types.float32))

    return types.float32(number), shifted


def same_bits(wanted: Any) -> Any:
    """A function that takes the bits of a number for one of another type."""

    def reinterpret(context: Any, number: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(wanted))

        return wanted(number), emit

    return intrinsic(reinterpret)


bits_of, float_of = same_bits(types.int32), same_bits(types.float32)


@intrinsic
def float_of_word(context: Any, number: Any) -> Any:
    """A whole number that fits 32 bits as float32: numba counts in 64, and AVX2 has no vectors of what brings those to
    floating point."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = builder.trunc(args[0], context.get_value_type(types.int32))
        return builder.sitofp(word, context.get_value_type(types.float32))

    return types.float32(types.int64), emit


@intrinsic
def quotient(context: Any, a: Any, b: Any) -> Any:
    """a / b of float32, infinite or no number where b is 0: numba's own looks for that, and makes no vectors."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fdiv(*args)

    return types.float32(types.float32, types.float32), emit


TO_INTEGER = np.float32(1.5 * 2**23)
"""Added to a small number, it leaves the nearest integer in the lowest bits: numba's own rounding gives 64
bits, of which AVX2 makes no vectors."""


@compiled
def exponential(x: Number) -> Number:
    """e^x to within 2 units of the last place, 0 below −87: a form that loops turn into vectors.

    e^x = 2^n · e^r with n the whole number next to x / ln 2 and |r| ≤ ln 2 / 2; e^r by its Taylor polynomial, whose
    remainder is below r⁸/8! ≈ 5e-9.
    """
    x = min(max(x, np.float32(-87.3)), np.float32(88.7))
    n = np.int32(bits_of(np.float32(x * np.float32(1.4426950408889634) + TO_INTEGER))) - np.int32(bits_of(TO_INTEGER))
    whole = float_of_word(n)
    r = x - whole * np.float32(0.693359375)
    r -= whole * np.float32(-2.12194440e-4)
    p = np.float32(1.0 / 5040)
    p = p * r + np.float32(1.0 / 720)
    p = p * r + np.float32(1.0 / 120)
    p = p * r + np.float32(1.0 / 24)
    p = p * r + np.float32(1.0 / 6)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    return p * float_of(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@compiled
def _tanh(x: Number) -> Number:
    return np.float32(1.0) - quotient(np.float32(2.0), np.float32(1.0) + exponential(np.float32(2.0) * x))


@compiled
def _normal(x: Number) -> Number:
    """The normal distribution's share below x, to within 2e-7.

    Above |x| there is e^(−x²/2)·t·p(t)/2 with t = 1 / (1 + 0.3275911·|x|/√2) and p a polynomial of degree 4
    (Abramowitz & Stegun 1964, 7.1.26), of which loops become vectors, as of the C library's erf they do not.
    """
    one, size = np.float32(1.0), abs(x)
    t = quotient(one, one + np.float32(0.3275911 * 0.7071067811865476) * size)
    p = np.float32(0.5 * 1.061405429)
    p = p * t + np.float32(0.5 * -1.453152027)
    p = p * t + np.float32(0.5 * 1.421413741)
    p = p * t + np.float32(0.5 * -0.284496736)
    p = p * t + np.float32(0.5 * 0.254829592)
    above = p * t * exponential(np.float32(-0.5) * size * size)
    return one - above if x > 0 else above


ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "relu2", "tanh")
"""The names of `activate_all`'s kinds by their number."""


@compiled
def activate_all(kind: int, x: Array) -> None:
    """x ← one of `ACTIVATIONS` of each number."""
    one, half = np.float32(1.0), np.float32(0.5)
    if kind == 0:
        for i in range(len(x)):
            x[i] = max(x[i], np.float32(0.0))
    elif kind == 1:
        for i in range(len(x)):
            x[i] *= _normal(x[i])
    elif kind == 2:
        for i in range(len(x)):
            inner = np.float32(0.7978845608028654) * (x[i] + np.float32(0.044715) * x[i] * x[i] * x[i])
            x[i] = half * x[i] * (one + _tanh(inner))
    elif kind == 3:
        for i in range(len(x)):
            x[i] = quotient(x[i], one + exponential(-x[i]))
    elif kind == 4:
        for i in range(len(x)):
            x[i] = max(x[i], np.float32(0.0)) ** 2
    else:
        for i in range(len(x)):
            x[i] = math.tanh(x[i])
