"""The loops of a decode program, in float32, over weights that are float32 or bfloat16.

Axes: R rows (one token of one sequence each), D width in, N width out, H heads, K key-value heads, E head, B sequences,
S capacity.

A decode step reads each weight once, so it is as fast as memory is. The loops are plain: numba spreads them over
threads and LLVM turns sums into vectors. Buffers of rows have room for a multiple of eight, as eight
rows are computed at a time with each weight in a register, and are a little wider than what they hold: rows that are a
multiple of 4096 bytes apart would share one set of the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from transpect.runtime.numeric import Number, activate, compiled, parallel
from transpect.runtime.products import pair

Array = Any
PAD = 16
"""How much wider buffers of rows are."""
SCRATCH = 64
"""Room for the sums of a thread, wide enough that no two threads write to one line of the cache."""
ROWS = 8
"""How many rows are computed at a time, where there are more than four."""


@compiled
def _dot(w: Array, x: Array) -> Number:
    total = np.float32(0.0)
    for d in range(len(w)):
        total += w[d] * x[d]
    return total


@compiled
def _begin(bias: Array, more: bool, out: Array, row: int, i: int) -> Number:
    begin = bias[i] if len(bias) else np.float32(0.0)
    return begin + out[row, i] if more else begin


@compiled
def _block(rows: int) -> int:
    """How many rows are computed at a time, where so many are left."""
    if rows == 1:
        return 1
    return ROWS if rows > ROWS // 2 else ROWS // 2


@compiled
def _share(weight: Array, bias: Array, x: Array, rows: int, more: bool, part: int, parts: int, out: Array) -> None:
    """One thread's share of `linear`."""
    first, last = part * len(weight) // parts, (part + 1) * len(weight) // parts
    # rows that are read at one time are far apart: within a page memory would see one stream, and lose it
    half = (last - first + 1) // 2
    dots = np.empty(SCRATCH, np.float32)
    if rows == 1:  # without the loops below, which cost as much as they do
        for i in range(first, first + half):
            j = min(i + half, last - 1)
            pair(weight, i, weight, j, x, 0, 1, dots)
            second = _begin(bias, more, out, 0, j) + dots[1]
            out[0, i] = _begin(bias, more, out, 0, i) + dots[0]
            if i + half < last:
                out[0, j] = second
        return
    for i in range(first, first + half):
        j = min(i + half, last - 1)
        for start in range(0, rows, ROWS):
            block = _block(rows - start)
            pair(weight, i, weight, j, x, start, block, dots)
            for r in range(min(block, rows - start)):
                out[start + r, i] = _begin(bias, more, out, start + r, i) + dots[r]
                if i + half < last:
                    out[start + r, j] = _begin(bias, more, out, start + r, j) + dots[block + r]


@parallel
def linear(weight: Array, bias: Array, x: Array, rows: int, more: bool, parts: int, out: Array) -> None:
    """out ← x·Wᵀ + bias, or out + that for ``more``: [R, D] -> [R, N]; an empty bias is none."""
    for part in prange(parts):
        _share(weight, bias, x, rows, more, part, parts, out)


@parallel
def project(
    q_weight: Array,
    q_bias: Array,
    k_weight: Array,
    k_bias: Array,
    v_weight: Array,
    v_bias: Array,
    x: Array,
    rows: int,
    parts: int,
    query: Array,
    key: Array,
    value: Array,
) -> None:
    """Three of `linear` of the same x at once: threads start and wait for each other once, not three times."""
    for part in prange(parts):
        _share(q_weight, q_bias, x, rows, False, part, parts, query)
        _share(k_weight, k_bias, x, rows, False, part, parts, key)
        _share(v_weight, v_bias, x, rows, False, part, parts, value)


@parallel
def gated(
    gate: Array,
    gate_bias: Array,
    up: Array,
    up_bias: Array,
    kind: int,
    x: Array,
    rows: int,
    parts: int,
    out: Array,
) -> None:
    """out ← act(x·Gᵀ + g) ⊙ (x·Uᵀ + u): [R, D] -> [R, N]."""
    n = len(gate)
    for part in prange(parts):
        dots = np.empty(SCRATCH, np.float32)
        for i in range(part * n // parts, (part + 1) * n // parts):
            a = gate_bias[i] if len(gate_bias) else np.float32(0.0)
            b = up_bias[i] if len(up_bias) else np.float32(0.0)
            if rows == 1:
                pair(gate, i, up, i, x, 0, 1, dots)
                out[0, i] = activate(kind, a + dots[0]) * (b + dots[1])
                continue
            for start in range(0, rows, ROWS):
                block = _block(rows - start)
                pair(gate, i, up, i, x, start, block, dots)
                for r in range(min(block, rows - start)):
                    out[start + r, i] = activate(kind, a + dots[r]) * (b + dots[block + r])


@compiled
def activated(kind: int, width: int, rows: int, x: Array) -> None:
    """x ← act(x), [R, N]."""
    for r in range(rows):
        for i in range(width):
            x[r, i] = activate(kind, x[r, i])


@compiled
def rms_norm(weight: Array, eps: float, x: Array, rows: int, times: int, out: Array) -> None:
    """out ← x / √(mean(x²) + eps) · weight, for each of a row's ``times`` parts."""
    n = len(weight)
    for r in range(rows):
        for start in range(0, times * n, n):
            own, result = x[r, start : start + n], out[r, start : start + n]
            squares = np.float32(0.0)
            for i in range(n):
                squares += own[i] * own[i]
            factor = np.float32(1.0 / math.sqrt(squares / n + eps))
            for i in range(n):
                result[i] = own[i] * factor * weight[i]


@compiled
def layer_norm(weight: Array, bias: Array, eps: float, x: Array, rows: int, times: int, out: Array) -> None:
    """out ← (x − mean) / √(var + eps) · weight + bias, for each of a row's ``times`` parts."""
    n = len(weight)
    for r in range(rows):
        for start in range(0, times * n, n):
            own, result = x[r, start : start + n], out[r, start : start + n]
            total, squares = np.float32(0.0), np.float32(0.0)
            for i in range(n):
                total += own[i]
            mean = np.float32(total / n)
            for i in range(n):
                squares += (own[i] - mean) * (own[i] - mean)
            factor = np.float32(1.0 / math.sqrt(squares / n + eps))
            for i in range(n):
                result[i] = (own[i] - mean) * factor * weight[i] + bias[i]


@compiled
def add(x: Array, rows: int, out: Array) -> None:
    """out ← out + x."""
    for r in range(rows):
        for i in range(x.shape[1]):
            out[r, i] += x[r, i]


@compiled
def clamp(limit: Number, width: int, rows: int, x: Array) -> None:
    """x ← x held within ±limit."""
    for r in range(rows):
        for i in range(width):
            x[r, i] = min(max(x[r, i], -limit), limit)


@compiled
def finish(factor: Number, bias: Array, cap: Number, width: int, rows: int, logits: Array) -> None:
    """logits ← c·tanh((factor·logits + bias) / c); c = 0 is no cap, an empty bias is none."""
    for r in range(rows):
        for i in range(width):
            x = factor * logits[r, i] + (bias[i] if len(bias) else np.float32(0.0))
            logits[r, i] = cap * np.float32(math.tanh(x / cap)) if cap > 0 else x


@compiled
def _turn(cos: Array, sin: Array, stride: int, gap: int, head: int, width: int, x: Array) -> None:
    half = len(cos) // 2
    for start in range(0, width, head):
        own = x[start : start + head]
        for i in range(half):
            first = np.uintp(stride * i)  # unsigned: numba would look whether it counts from the end
            second = np.uintp(stride * i + gap)
            a, b = own[first], own[second]
            own[first] = a * cos[first] - b * sin[first]
            own[second] = b * cos[second] + a * sin[second]


@compiled
def place(
    cos: Array,
    sin: Array,
    stride: int,
    gap: int,
    query: Array,
    key: Array,
    value: Array,
    width: int,
    sequence: Array,
    position: Array,
    rows: int,
    keys: Array,
    values: Array,
) -> None:
    """Turn each row's query [R, H·E] and key by their position, and write its key and value [R, K·E] to the place of
    its token in [B, K, S, E].

    Args:
        cos, sin: [S, rotated part of a head]: the pair of dimensions (stride·i, stride·i + gap) of a head turns by its
            angle at the row's position. Empty ones turn nothing.
        width: H·E.
    """
    n_heads, head = keys.shape[1], keys.shape[3]
    for r in range(rows):
        b, s = sequence[r], position[r]
        if len(cos):
            _turn(cos[s], sin[s], stride, gap, head, width, query[r])
            _turn(cos[s], sin[s], stride, gap, head, n_heads * head, key[r])
        for k in range(n_heads):
            keys[b, k, s] = key[r, k * head : (k + 1) * head]
            values[b, k, s] = value[r, k * head : (k + 1) * head]


@parallel
def attend(
    query: Array,
    keys: Array,
    values: Array,
    sequence: Array,
    last: Array,
    window: int,
    scale: Number,
    cap: Number,
    bias: Array,
    rows: int,
    scores: Array,
    out: Array,
) -> None:
    """softmax(cap(scale·q·k) + bias of the distance) · v, each row over the keys from last − window + 1 to last of its
    sequence: [R, H·E] -> [R, H·E].

    Args:
        window: how many keys a row sees at most.
        cap: c of c·tanh(score/c); 0 is none.
        bias: [H, S] by distance, or empty.
        scores: [R, H, S], to work in.
    """
    heads, head = scores.shape[1], keys.shape[3]
    group = heads // keys.shape[1]
    for task in prange(rows * heads):
        r, h = task // heads, task % heads
        b, end = sequence[r], last[r] + 1
        begin = max(0, end - window)
        q, own = query[r, h * head : (h + 1) * head], scores[r, h]
        k, v = keys[b, h // group], values[b, h // group]
        most = np.float32(-np.inf)
        for s in range(begin, end):
            score = np.float32(scale * _dot(q, k[s]))
            if cap > 0:
                score = cap * math.tanh(score / cap)
            if len(bias):
                score += bias[h, end - 1 - s]
            own[s] = score
            most = max(most, score)
        total = np.float32(0.0)
        for s in range(begin, end):
            own[s] = math.exp(own[s] - most)
            total += own[s]
        result = out[r, h * head : (h + 1) * head]
        result[:] = np.float32(0.0)
        for s in range(begin, end):
            share = own[s] / total
            for e in range(head):
                result[e] += share * v[s, e]
