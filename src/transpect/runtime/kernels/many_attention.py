"""Attention of many rows: tiles of queries with segments of keys, by the softmax that is corrected as it goes on.

Axes: Q queries of a tile (rows, and heads that share keys), S keys of a segment, E head.

A tile is of rows of one sequence that follow each other. Scores stand as [S, Q], so that what softmax does is done to
vectors of queries, and keys and values are read as they lie. Segments begin at fixed places of a sequence, so the
result of a row does not depend on where a pass begins. Source: Milakov & Gimelshein, "Online normalizer calculation
for softmax" (2018); Dao et al., "FlashAttention" (2022).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel
from transpect.runtime.products.kernel import address
from transpect.runtime.products.softmax import softmax_tile
from transpect.runtime.products.tiles import COLUMNS, ROWS, floats_tile

Array = Any
QUERIES = 96 if COLUMNS > 16 else 48
"""Of a tile: a multiple of `COLUMNS` and of `ROWS`."""
SEGMENT = 256
"""Most keys that are scored at a time."""
BEHIND = 16
"""Rows of a head that may be read behind the last key, and mean nothing."""
_NEVER = np.float32(-1e30)


@compiled
def _scored(query: Array, keys: Array, block: int, k: int, slot: int, count: int, scores: Array) -> None:
    """scores [S, Q] ← keys · query [E, Q]."""
    head = keys.shape[3]
    scores[: count + ROWS] = np.float32(0.0)
    from_key = address(keys, block) + 4 * head * (k * keys.shape[2] + slot)
    step = 4 * QUERIES
    for s in range(0, count, ROWS):
        for q in range(0, QUERIES, COLUMNS):
            x = from_key + 4 * head * s, 4 * head, 4
            floats_tile((*x, address(query, 0) + 4 * q, step, head, address(scores, s) + 4 * q, step))


@compiled
def _mixed(scores: Array, values: Array, block: int, k: int, slot: int, count: int, out: Array) -> None:
    """out [Q, E] += scoresᵀ · values."""
    head = values.shape[3]
    from_value = address(values, block) + 4 * head * (k * values.shape[2] + slot)
    for e in range(0, head, COLUMNS):
        for q in range(0, QUERIES, ROWS):
            x = address(scores, 0) + 4 * q, 4, 4 * QUERIES
            floats_tile((*x, from_value + 4 * e, 4 * head, count, address(out, q) + 4 * e, 4 * out.shape[1]))


@compiled
def _finished(scores: Array, begin: int, count: int, cap: float, bias: Array, h: int, heads: int, at: Array) -> None:
    """scores ← cap(scores) + bias of the distance."""
    if cap > 0:
        for s in range(count):
            for q in range(QUERIES):
                scores[s, q] = cap * np.float32(math.tanh(scores[s, q] / cap))
    if len(bias):
        for s in range(count):
            for q in range(QUERIES):
                distance = at[q] - begin - s
                if 0 <= distance < bias.shape[1]:
                    scores[s, q] += bias[h + q % heads, distance]


@compiled
def _hidden(scores: Array, begin: int, count: int, first: Array, at: Array) -> None:
    """What a query does not see."""
    for s in range(count):
        for q in range(QUERIES):
            if begin + s < first[q] or begin + s > at[q]:
                scores[s, q] = -np.inf


@compiled
def _shares(scores: Array, count: int, most: Array, total: Array, factor: Array, out: Array) -> None:
    """scores ← e^(scores − most); what was summed before is brought to the new largest score."""
    for q in range(0, QUERIES, COLUMNS):
        of_queries = address(most, q), address(total, q), address(factor, q)
        softmax_tile((address(scores, 0) + 4 * q, 4 * QUERIES, count, *of_queries))
    for q in range(QUERIES):
        for e in range(out.shape[1]):
            out[q, e] *= factor[q]


@kernel()
def attend_many(
    query: Array,
    keys: Array,
    values: Array,
    blocks: Array,
    window: int,
    scale: float,
    cap: float,
    bias: Array,
    heads: int,
    out: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """`attend` for many rows.

    Args:
        heads: H.
    """
    n_kv, size, head = keys.shape[1], keys.shape[2], keys.shape[3]
    group = heads // n_kv
    together = group
    while together > QUERIES or group % together:
        together -= 1
    most_rows = QUERIES // together
    wide = (head + COLUMNS - 1) // COLUMNS * COLUMNS
    turned = np.zeros((head, QUERIES), np.float32)
    scores = np.zeros((SEGMENT + ROWS, QUERIES), np.float32)
    mixed = np.zeros((QUERIES, wide), np.float32)
    most, total, factor = (np.empty(QUERIES, np.float32), np.empty(QUERIES, np.float32), np.empty(QUERIES, np.float32))
    first, at = np.zeros(QUERIES, np.int64), np.zeros(QUERIES, np.int64)
    row, task = 0, 0
    while row < rows.n:
        b, count = rows.sequence[row], 1
        while count < most_rows and row + count < rows.n and rows.sequence[row + count] == b:
            count += 1
        for h in range(0, heads, together):
            k, own_heads = h // group, together
            task += 1
            if task % parts != part:
                continue
            turned[:] = np.float32(0.0)
            begin, end, latest, earliest = np.int64(1) << 40, np.int64(0), np.int64(0), np.int64(1) << 40
            for q in range(QUERIES):
                r = row + min(q // own_heads, count - 1)
                at[q] = rows.position[r]
                first[q] = max(rows.first[r], at[q] + 1 - window)
                begin, latest = min(begin, first[q]), max(latest, first[q])
                end, earliest = max(end, at[q] + 1), min(earliest, at[q])
                if q < own_heads * count:
                    from_head = head * (h + q % own_heads)
                    for e in range(head):
                        turned[e, q] = scale * query[r, from_head + e]
            most[:], total[:], mixed[:] = _NEVER, np.float32(0.0), np.float32(0.0)
            s = begin
            while s < end:
                slot = s % size
                n = min(end - s, size - slot, SEGMENT - s % SEGMENT)
                block = blocks[b, s // size % blocks.shape[1]]
                _scored(turned, keys, block, k, slot, n, scores)
                _finished(scores, s, n, cap, bias, h, own_heads, at)
                if s < latest or s + n - 1 > earliest:
                    _hidden(scores, s, n, first, at)
                _shares(scores, n, most, total, factor, mixed)
                _mixed(scores, values, block, k, slot, n, mixed)
                s += n
            for q in range(own_heads * count):
                r, to = row + q // own_heads, head * (h + q % own_heads)
                for e in range(head):
                    out[r, to + e] = mixed[q, e] / total[q]
        row += count
