"""Rows of weights in float32, as their formats say, for who multiplies many rows of activations with each."""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.products.formats import (
    BLOCK,
    Q4_0,
    Q4_1,
    Q4_K,
    Q6_K,
    Q8_0,
    Int4Groups,
    Int4Shifted,
    Int8Groups,
)
from transpect.runtime.products.kernel import address, chosen_by_types, class_of
from transpect.runtime.products.pairs import restore
from transpect.runtime.products.panels import block

Array = Any
IN_BLOCKS = (Int8Groups, Int4Groups, Int4Shifted, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K)


def float_rows(w: Any, first: int, real: int, room: Array) -> Any:
    """The address of ``len(room)`` rows, each after the other, of which those beyond ``real`` are 0: of the weight
    itself where that is so, else of ``room``, where they are written; for compiled code."""
    raise AssertionError("for compiled code")


def _in_place(w: Any, first: int, real: int, room: Array) -> Any:
    if real == len(room):
        return address(w, first)
    room[:real] = w[first : first + real]
    room[real:] = np.float32(0.0)
    return address(room, 0)


def _restored(w: Any, first: int, real: int, room: Array) -> Any:
    for i in range(real):
        restore(w, first + i, np.float32(1.0), room[i])
    room[real:] = np.float32(0.0)
    return address(room, 0)


def _by_blocks(w: Any, first: int, real: int, room: Array) -> Any:
    q = np.zeros(BLOCK, np.int16)
    for i in range(real):
        for b in range(room.shape[1] // BLOCK):
            scale, least = block(w, first + i, b, q)
            for n in range(BLOCK):
                room[i, BLOCK * b + n] = scale * np.float32(q[n]) - least
    room[real:] = np.float32(0.0)
    return address(room, 0)


def _chosen(w: Any, first: Any, real: Any, room: Any) -> Any:
    if class_of(w) in IN_BLOCKS:
        return _by_blocks
    return _in_place if class_of(w) is None and w.dtype.name == "float32" else _restored


chosen_by_types(float_rows, _chosen)
