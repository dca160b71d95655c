"""Attention of rows over the keys and values that a program remembers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number, exponential

Array = Any


@compiled
def _dot(w: Array, x: Array) -> Number:
    total = np.float32(0.0)
    for d in range(len(w)):
        total += w[d] * x[d]
    return total


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


@kernel(by_rows=True)
def place(
    cos: Array,
    sin: Array,
    stride: int,
    gap: int,
    width: int,
    query: Array,
    key: Array,
    value: Array,
    keys: Array,
    values: Array,
    blocks: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """Turn each row's query [R, H·E] and key by their position, and write its key and value [R, K·E] to the place of
    its token in [N, K, P, E].

    Args:
        cos, sin: [S, rotated part of a head]: the pair of dimensions (stride·i, stride·i + gap) of a head turns by its
            angle at the row's position. Empty ones turn nothing.
        width: H·E.
        blocks: [B, W], block j of a sequence in place j mod W.
    """
    n_heads, size, head = keys.shape[1], keys.shape[2], keys.shape[3]
    for r in range(part, rows.n, parts):
        b, s = rows.sequence[r], rows.position[r]
        if len(cos):
            _turn(cos[s], sin[s], stride, gap, head, width, query[r])
            _turn(cos[s], sin[s], stride, gap, head, n_heads * head, key[r])
        number, slot = blocks[b, s // size % blocks.shape[1]], s % size
        for k in range(n_heads):
            keys[number, k, slot] = key[r, k * head : (k + 1) * head]
            values[number, k, slot] = value[r, k * head : (k + 1) * head]


@compiled
def _fours(first: int, last: int) -> tuple[int, int]:
    """Where whole fours of first … last − 1 begin and end, counted from 0: the same ones however they are parted."""
    begin = min((first + 3) // 4 * 4, last)
    return begin, max(begin, last // 4 * 4)


@compiled
def _score(query: Array, held: Array, first: int, last: int, own: Array) -> None:
    """own ← q · k of the keys in some slots of a block. Four at a time share the loads of the query."""
    begin, end = _fours(first, last)
    for i in range(first, begin):
        own[i - first] = _dot(held[i], query)
    for i in range(begin, end, 4):
        a = b = c = d = np.float32(0.0)
        k0, k1, k2, k3 = held[i], held[i + 1], held[i + 2], held[i + 3]
        for e in range(len(query)):
            x = query[e]
            a += k0[e] * x
            b += k1[e] * x
            c += k2[e] * x
            d += k3[e] * x
        own[i - first], own[i - first + 1], own[i - first + 2], own[i - first + 3] = a, b, c, d
    for i in range(end, last):
        own[i - first] = _dot(held[i], query)


@compiled
def _add(held: Array, first: int, last: int, share: Array, out: Array) -> None:
    """out ← out + Σ share · v of the values in some slots of a block. Four at a time share the writing of the sums."""
    begin, end = _fours(first, last)
    for i in range(first, begin):
        for e in range(len(out)):
            out[e] += share[i - first] * held[i, e]
    for i in range(begin, end, 4):
        a, b, c, d = share[i - first], share[i - first + 1], share[i - first + 2], share[i - first + 3]
        v0, v1, v2, v3 = held[i], held[i + 1], held[i + 2], held[i + 3]
        for e in range(len(out)):
            out[e] += a * v0[e] + b * v1[e] + c * v2[e] + d * v3[e]
    for i in range(end, last):
        for e in range(len(out)):
            out[e] += share[i - first] * held[i, e]


@compiled
def _mix(
    q: Array,
    keys: Array,
    values: Array,
    k: int,
    blocks: Array,
    begin: int,
    end: int,
    scale: Number,
    cap: Number,
    bias: Array,
    own: Array,
    out: Array,
) -> None:
    """out ← softmax(cap(scale·q·k) + bias of the distance) · v over the keys of head k from begin to end − 1: [E]."""
    size, ring, count = keys.shape[2], len(blocks), end - begin
    s = begin
    while s < end:
        slot = s % size
        last = min(size, slot + end - s)
        _score(q, keys[blocks[s // size % ring], k], slot, last, own[s - begin :])
        s += last - slot
    most = np.float32(-np.inf)
    for s in range(count):
        score = np.float32(scale * own[s])
        if cap > 0:
            score = cap * np.float32(math.tanh(score / cap))
        if len(bias):
            score += bias[count - 1 - s]
        own[s] = score
        most = max(most, score)
    total = np.float32(0.0)
    for s in range(count):
        share = exponential(own[s] - most)
        own[s] = share
        total += share
    out[:] = np.float32(0.0)
    s = begin
    while s < end:
        slot = s % size
        last = min(size, slot + end - s)
        _add(values[blocks[s // size % ring], k], slot, last, own[s - begin :], out)
        s += last - slot
    for e in range(len(out)):
        out[e] /= total


@kernel()
def attend(
    query: Array,
    keys: Array,
    values: Array,
    blocks: Array,
    window: int,
    scale: Number,
    cap: Number,
    bias: Array,
    scores: Array,
    out: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """softmax(cap(scale·q·k) + bias of the distance) · v, each row over the last ``window`` keys of its sequence, its
    own among them, that are not before its first one: [R, H·E] -> [R, H·E].

    Args:
        blocks: [B, W], block j of a sequence in place j mod W.
        cap: c of c·tanh(score/c); 0 is none.
        bias: [H, span] by distance, or empty.
        scores: [R, H, span], to work in.
    """
    heads, head = scores.shape[1], keys.shape[3]
    group, tasks = heads // keys.shape[1], rows.n * heads
    for task in range(part * tasks // parts, (part + 1) * tasks // parts):
        r, h = task // heads, task % heads
        b, end = rows.sequence[r], rows.position[r] + 1
        _mix(
            query[r, h * head : (h + 1) * head],
            keys,
            values,
            h // group,
            blocks[b],
            max(rows.first[r], end - window),
            end,
            scale,
            cap,
            bias[h] if len(bias) else bias[0:0, 0],
            scores[r, h],
            out[r, h * head : (h + 1) * head],
        )


@kernel()
def attend_source(
    query: Array,
    keys: Array,
    values: Array,
    last: Array,
    scale: Number,
    cap: Number,
    scores: Array,
    out: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """`attend` over all keys of each row's source, whose last one is at last [B]."""
    heads, head = scores.shape[1], keys.shape[3]
    group, tasks = heads // keys.shape[1], rows.n * heads
    for task in range(part * tasks // parts, (part + 1) * tasks // parts):
        r, h = task // heads, task % heads
        b = rows.source[r]
        _mix(
            query[r, h * head : (h + 1) * head],
            keys,
            values,
            h // group,
            rows.source[r : r + 1],
            0,
            last[b] + 1,
            scale,
            cap,
            scores[0, 0, 0:0],
            scores[r, h],
            out[r, h * head : (h + 1) * head],
        )
