"""Causal attention of training, in float32: a query sees the keys up to its own.

Axes: B rows, T tokens, H heads, K key-value heads, E head; Q queries of a tile, S keys of a segment, C columns of a
panel.

P is e^(scale·q·k − total), where total is ln Σ e^(scale·q·k) of a query. Of the gradient G by the output come

    ∂v = Pᵀ·G,  ∂s = P ⊙ (G·vᵀ − Σ out ⊙ G),  ∂q = scale·∂s·k,  ∂k = scale·∂sᵀ·q,

with P computed again, tile by tile; keys after the last query of a tile are passed over. Source: Dao et al.,
"FlashAttention" (2022), appendix B.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number, exponential, quotient
from transpect.runtime.products.attending import largest_of
from transpect.runtime.products.kernel import address
from transpect.runtime.products.tiles import COLUMNS, ROWS, floats_anew, floats_tile
from transpect.runtime.products.turning import LANES, turned_tile

Array = Any
QUERIES = 48
"""Of a tile: a multiple of `ROWS`."""
SEGMENT = 256
"""Most keys of a segment: a multiple of `COLUMNS`."""
STRIDE = SEGMENT + COLUMNS
"""Of scores: rows that are a power of two apart would share few sets of the cache."""
ONE = np.float32(1.0)


@kernel()
def causal(
    query: Array, key: Array, value: Array, scale: Number, out: Array, total: Array, rows: Any, part: int, parts: int
) -> None:
    """out ← softmax(scale·q·k)·v, and total: [B, T, H, E], [B, T, K, E] twice -> [B, T, H, E], [B, H, T]."""
    batch, length, heads, head = query.shape
    kv_heads, wide = key.shape[2], _up(head, COLUMNS)
    keys, values = _panels(length, head), np.zeros((length, wide), np.float32)
    own, mixed = np.zeros((QUERIES, wide), np.float32), np.zeros((QUERIES, wide), np.float32)
    scores = np.zeros((QUERIES, STRIDE), np.float32)
    most, sums = np.zeros(QUERIES, np.float32), np.zeros(QUERIES, np.float32)
    for task in range(part, batch * kv_heads, parts):
        b, k = task // kv_heads, task % kv_heads
        _turn(key[b, :, k], keys)
        for s in range(length):
            _copy(value[b, s, k], ONE, values[s])
        for h in range(k * heads // kv_heads, (k + 1) * heads // kv_heads):
            for q in range(0, length, QUERIES):
                n = min(QUERIES, length - q)
                for m in range(n):
                    _copy(query[b, q + m, h], scale, own[m])
                most[:], sums[:], mixed[:] = -np.inf, np.float32(0.0), np.float32(0.0)
                for s in range(0, q + n, SEGMENT):
                    count = min(SEGMENT, q + n - s)
                    _score(own, keys, q, n, s, count, scores)
                    for m in range(n):
                        _share(scores[m], min(count, q + m + 1 - s), count, m, most, sums, mixed)
                    for m in range(0, n, ROWS):
                        _add(address(scores, m), STRIDE, 1, min(count, q + m + ROWS - s), values, s, mixed, m)
                for m in range(n):
                    total[b, h, q + m] = most[m] + np.float32(math.log(sums[m]))
                    _copy(mixed[m, :head], quotient(ONE, sums[m]), out[b, q + m, h])


@kernel()
def pull_causal(
    query: Array,
    key: Array,
    value: Array,
    scale: Number,
    out: Array,
    total: Array,
    by: Array,
    of_query: Array,
    of_key: Array,
    of_value: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """of_query, of_key, of_value ← the gradients by what `causal` was given, of that by its output."""
    batch, length, heads, head = query.shape
    kv_heads, wide = key.shape[2], _up(head, COLUMNS)
    keys, values, plain = _panels(length, head), _panels(length, head), np.zeros((length, wide), np.float32)
    by_keys, by_values = np.zeros((length + ROWS, wide), np.float32), np.zeros((length + ROWS, wide), np.float32)
    own, slope = np.zeros((QUERIES, wide), np.float32), np.zeros((QUERIES, wide), np.float32)
    by_own = np.zeros((QUERIES, wide), np.float32)
    scores, pulls = np.zeros((QUERIES, STRIDE), np.float32), np.zeros((QUERIES, STRIDE), np.float32)
    for task in range(part, batch * kv_heads, parts):
        b, k = task // kv_heads, task % kv_heads
        _turn(key[b, :, k], keys)
        _turn(value[b, :, k], values)
        for s in range(length):
            _copy(key[b, s, k], ONE, plain[s])
        by_keys[:], by_values[:] = np.float32(0.0), np.float32(0.0)
        for h in range(k * heads // kv_heads, (k + 1) * heads // kv_heads):
            for q in range(0, length, QUERIES):
                n = min(QUERIES, length - q)
                for m in range(n):
                    _copy(query[b, q + m, h], scale, own[m])
                    _copy(by[b, q + m, h], ONE, slope[m])
                by_own[:] = np.float32(0.0)
                for s in range(0, q + n, SEGMENT):
                    count = min(SEGMENT, q + n - s)
                    _score(own, keys, q, n, s, count, scores)
                    _score(slope, values, q, n, s, count, pulls)
                    for m in range(n):
                        inner = _dot(slope[m], out[b, q + m, h])
                        seen = min(count, q + m + 1 - s)
                        _pull(scores[m], pulls[m], seen, _up(count, ROWS), total[b, h, q + m], inner)
                    for c in range(0, count, ROWS):
                        first = max(0, s + c - q)  # queries before see none of these keys
                        here, there = address(scores, first) + 4 * c, address(pulls, first) + 4 * c
                        _add(here, 1, STRIDE, n - first, slope, first, by_values, s + c)
                        _add(there, 1, STRIDE, n - first, own, first, by_keys, s + c)
                    for m in range(0, n, ROWS):
                        _add(address(pulls, m), STRIDE, 1, min(count, q + m + ROWS - s), plain, s, by_own, m)
                for m in range(n):
                    _copy(by_own[m, :head], scale, of_query[b, q + m, h])
        for s in range(length):
            _copy(by_keys[s, :head], ONE, of_key[b, s, k])
            _copy(by_values[s, :head], ONE, of_value[b, s, k])


@compiled
def _up(n: int, step: int) -> int:
    return (n + step - 1) // step * step


@compiled
def _panels(length: int, head: int) -> Array:
    """[T/C, E, C]."""
    return np.zeros(((length + COLUMNS - 1) // COLUMNS, head, COLUMNS), np.float32)


@compiled
def _turn(x: Array, panels: Array) -> None:
    """panels [T/C, E, C] ← x [T, E]: C rows beside each other."""
    head = x.shape[1]
    for s in range(0, len(x), COLUMNS):
        own, count = panels[s // COLUMNS], min(COLUMNS, len(x) - s)
        whole = head // LANES * LANES if count == COLUMNS else 0
        turned_tile((address(x, s), address(x, 1) - address(x, 0), whole, address(own, 0)))
        for e in range(whole, head):
            for c in range(count):
                own[e, c] = x[s + c, e]


@compiled
def _copy(x: Array, factor: Number, out: Array) -> None:
    """out ← factor · x, of arrays [E]."""
    for e in range(len(x)):
        out[e] = factor * x[e]


@compiled
def _dot(x: Array, y: Array) -> Number:
    total = np.float32(0.0)
    for e in range(len(y)):
        total += x[e] * y[e]
    return total


@compiled
def _score(x: Array, panels: Array, q: int, n: int, s: int, count: int, scores: Array) -> None:
    """scores [Q, S] ← x · panelsᵀ of n queries from q on and keys from s on, where a query may see a key."""
    for c in range(0, count, COLUMNS):
        panel = address(panels, (s + c) // COLUMNS), 4 * COLUMNS, panels.shape[1]
        for m in range(max(0, (s + c - q) // ROWS * ROWS), n, ROWS):
            own = address(x, m), 4 * x.shape[1], 4
            floats_anew((*own, *panel, address(scores, m) + 4 * c, 4 * STRIDE))


@compiled
def _add(x: int, of_row: int, of_column: int, count: int, panel: Array, first: int, out: Array, row: int) -> None:
    """out[row : row + `ROWS`] += x · panel[first : first + count]; x is an address, with its steps in numbers."""
    step = 4 * panel.shape[1]
    for e in range(0, step, 4 * COLUMNS):
        own = x, 4 * of_row, 4 * of_column, address(panel, first) + e, step, max(0, count)
        floats_tile((*own, address(out, row) + e, step))


@compiled
def _share(scores: Array, seen: int, count: int, m: int, most: Array, sums: Array, mixed: Array) -> None:
    """scores ← e^(scores − most) of the keys that are seen, 0 of the others; what was summed before follows."""
    before = most[m]
    largest_of((address(scores, 0), max(0, seen), address(most, m)))
    if most[m] > before:
        factor = exponential(before - most[m])
        sums[m] *= factor
        for e in range(mixed.shape[1]):
            mixed[m, e] *= factor
    else:
        most[m] = before
    top, total = most[m], np.float32(0.0)
    for s in range(seen):
        scores[s] = exponential(scores[s] - top)
        total += scores[s]
    sums[m] += total
    scores[max(0, seen) : count] = np.float32(0.0)


@compiled
def _pull(scores: Array, pulls: Array, seen: int, count: int, total: Number, inner: Number) -> None:
    """scores ← P, pulls ← P ⊙ (pulls − inner) of the keys that are seen; 0 of the others."""
    for s in range(seen):
        share = exponential(scores[s] - total)
        scores[s], pulls[s] = share, share * (pulls[s] - inner)
    scores[max(0, seen) : count], pulls[max(0, seen) : count] = np.float32(0.0), np.float32(0.0)
