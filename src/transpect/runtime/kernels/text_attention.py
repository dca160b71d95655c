"""Attention within whole texts, with tokens as lanes (`texts`), both ways.

Axes: P panels, C tokens of a panel, H heads, K key-value heads, E head, S keys of a text.

A *span* is the tokens of one text in one panel. Its scores stand as [S, C], queries beside each other, and are made of
keys where they lie. Lanes of other texts are computed too, and mean nothing: no text reads another one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number, quotient
from transpect.runtime.products.kernel import address
from transpect.runtime.products.softmax import softmax_tile
from transpect.runtime.products.tiles import COLUMNS, ROWS, floats_anew, floats_tile

Array = Any
STEP = 4 * COLUMNS
_NEVER = np.float32(-1e30)


@kernel()
def turn_texts(
    cos: Array, sin: Array, stride: int, gap: int, head: int, heads: int, x: Array, rows: Any, part: int, parts: int
) -> None:
    """Rotary positions: a pair of dimensions is turned by the angle of the token's position, in each head of x.

    Args:
        cos, sin: [S, R].
        stride, gap: pair i is (stride·i, stride·i + gap).
    """
    own_cos, own_sin = np.empty(COLUMNS, np.float32), np.empty(COLUMNS, np.float32)
    for p in range(part, rows.panels, parts):
        for i in range(cos.shape[1] // 2):
            for c in range(COLUMNS):
                position = rows.position[COLUMNS * p + c]
                own_cos[c], own_sin[c] = cos[position, stride * i], sin[position, stride * i]
            for h in range(heads):
                one = COLUMNS * (head * h + stride * i)
                other = one + COLUMNS * gap
                for c in range(COLUMNS):
                    u, v = x[p, one + c], x[p, other + c]
                    x[p, one + c] = u * own_cos[c] - v * own_sin[c]
                    x[p, other + c] = v * own_cos[c] + u * own_sin[c]


@kernel()
def attend_texts(
    query: Array,
    key: Array,
    value: Array,
    shape: Any,
    scale: Number,
    cap: Number,
    window: int,
    bias: Array,
    out: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """out ← softmax(cap(scale·q·k) + bias)·v of each text.

    Args:
        shape: (H, K, E).
        cap: c in c·tanh(score/c); 0 is none.
        window: a token sees those that are nearer than this.
        bias: [H, 2·L − 1] by distance, from 1 − L on, which is a key L − 1 ahead; empty where nothing is added.
    """
    heads, kv_heads, head = shape
    own, mixed = np.empty(head * COLUMNS, np.float32), np.empty((head + ROWS, COLUMNS), np.float32)
    scores = np.empty((rows.longest + ROWS, COLUMNS), np.float32)
    most, total, factor = np.empty(COLUMNS, np.float32), np.empty(COLUMNS, np.float32), np.empty(COLUMNS, np.float32)
    tasks = heads * rows.spans
    for task in range(part * tasks // parts, (part + 1) * tasks // parts):
        h, first = task // rows.spans, rows.first[task % rows.spans]
        last, text = rows.last[task % rows.spans], rows.text[task % rows.spans]
        begin, end = max(rows.begin[text], first - window + 1), min(rows.begin[text + 1], last + window - 1)
        panel, at = first // COLUMNS, COLUMNS * head * h
        of_head = STEP * head * (h // (heads // kv_heads))
        for i in range(head * COLUMNS):
            own[i] = scale * query[panel, at + i]
        s = begin
        while s < end:
            count = min(end - s, COLUMNS - s % COLUMNS)
            keys = address(key, s // COLUMNS) + of_head + 4 * (s % COLUMNS)
            for r in range(0, count, ROWS):
                floats_anew((keys + 4 * r, 4, STEP, address(own, 0), STEP, head, address(scores, s - begin + r), STEP))
            s += count
        _finished(scores, begin, end, panel, cap, window, bias, h)
        most[:], total[:] = _NEVER, np.float32(0.0)
        softmax_tile((address(scores, 0), STEP, end - begin, address(most, 0), address(total, 0), address(factor, 0)))
        mixed[:] = np.float32(0.0)
        s = begin
        while s < end:
            count = min(end - s, COLUMNS - s % COLUMNS)
            values = address(value, s // COLUMNS) + of_head + 4 * (s % COLUMNS)
            for e in range(0, head, ROWS):
                shares = address(scores, s - begin), STEP
                floats_tile((values + STEP * e, STEP, 4, *shares, count, address(mixed, e), STEP))
            s += count
        for c in range(COLUMNS):
            factor[c] = quotient(np.float32(1.0), total[c])  # of a lane that means nothing it may be 1 / 0
        if last - first == COLUMNS:
            for e in range(head):
                for c in range(COLUMNS):
                    out[panel, at + COLUMNS * e + c] = mixed[e, c] * factor[c]
        else:
            for e in range(head):
                for c in range(first % COLUMNS, first % COLUMNS + last - first):
                    out[panel, at + COLUMNS * e + c] = mixed[e, c] * factor[c]


@compiled
def _finished(scores: Array, begin: int, end: int, panel: int, cap: Number, window: int, bias: Array, h: int) -> None:
    """scores ← cap(scores) + bias of the distance; −∞ where a query does not see a key."""
    if cap > 0:
        for s in range(end - begin):
            for c in range(COLUMNS):
                scores[s, c] = cap * np.float32(math.tanh(scores[s, c] / cap))
    middle = bias.shape[1] // 2
    if len(bias):
        for s in range(end - begin):
            for c in range(COLUMNS):
                place = middle + COLUMNS * panel + c - begin - s
                if 0 <= place < bias.shape[1]:  # others are of lanes that mean nothing
                    scores[s, c] += bias[h, place]
    if end - begin > window:
        for s in range(end - begin):
            for c in range(COLUMNS):
                if abs(COLUMNS * panel + c - begin - s) >= window:
                    scores[s, c] = -np.inf
