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
    size, ring = keys.shape[2], len(blocks)
    most = np.float32(-np.inf)
    s = begin
    while s < end:
        held, slot = keys[blocks[s // size % ring], k], s % size
        for i in range(slot, min(size, slot + end - s)):
            score = np.float32(scale * _dot(q, held[i]))
            if cap > 0:
                score = cap * np.float32(math.tanh(score / cap))
            if len(bias):
                score += bias[end - 1 - s]
            own[s - begin] = score
            most = max(most, score)
            s += 1
    total = np.float32(0.0)
    for s in range(end - begin):
        share = exponential(own[s] - most)
        own[s] = share
        total += share
    out[:] = np.float32(0.0)
    s = begin
    while s < end:
        held, slot = values[blocks[s // size % ring], k], s % size
        for i in range(slot, min(size, slot + end - s)):
            share = own[s - begin] / total
            for e in range(len(out)):
                out[e] += share * held[i, e]
            s += 1


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
