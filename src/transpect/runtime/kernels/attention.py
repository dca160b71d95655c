"""Attention of rows over the keys and values that a program remembers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number
from transpect.runtime.products.attending import mixed_of, scores_of, shares_of
from transpect.runtime.products.kernel import address

Array = Any
PIECE = 16
"""Keys that are read while memory is asked for the next ones: it gives one page at a time otherwise."""


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
    query: Array,
    keys: Array,
    values: Array,
    k: int,
    blocks: Array,
    begin: int,
    end: int,
    scale: Number,
    cap: Number,
    bias: Array,
    first: int,
    last: int,
    scores: Array,
    out: Array,
) -> None:
    """out ← softmax(cap(scale·q·k) + bias of the distance) · v over the keys of head k from begin to end − 1, for the
    heads from first to last − 1 that share it: [H·E]. What lies in a block is read once for all of them."""
    count, head, heads = end - begin, keys.shape[3], last - first
    step, of_scores, s = 4 * head, 4 * scores.shape[1], begin
    own_query, own_scores, own_out = address(query, first * head), address(scores, first), address(out, first * head)
    while s < end:
        n = _piece(keys, s, end)
        held, ahead, following = _place_of(keys, blocks, k, s), np.int64(0), _piece(keys, s + n, end)
        if following:
            ahead = _place_of(keys, blocks, k, s + n)
        else:
            ahead, following = _place_of(values, blocks, k, begin), _piece(keys, begin, end)
        to = own_scores + 4 * (s - begin), of_scores
        scores_of((own_query, step, held, step, head, n, *to, heads, ahead, step * following))
        s += n
    for h in range(first, last):
        own = scores[h, :count]
        for s in range(count):
            own[s] *= scale
        if cap > 0:
            for s in range(count):
                own[s] = cap * np.float32(math.tanh(own[s] / cap))
        if len(bias):
            for s in range(count):
                own[s] += bias[h, count - 1 - s]
        shares_of((address(own, 0), count))
        out[h * head : (h + 1) * head] = np.float32(0.0)
    s = begin
    while s < end:
        n = _piece(values, s, end)
        held, ahead, following = _place_of(values, blocks, k, s), np.int64(0), _piece(values, s + n, end)
        if following:
            ahead = _place_of(values, blocks, k, s + n)
        share = own_scores + 4 * (s - begin), of_scores
        mixed_of((*share, held, step, head, n, own_out, step, heads, ahead, step * following))
        s += n


@compiled
def _piece(held: Array, s: int, end: int) -> Any:
    """How many keys, or values, from s on are read at a time: they lie together."""
    size = held.shape[2]
    return max(0, min(size - s % size, end - s, PIECE))


@compiled
def _place_of(held: Array, blocks: Array, k: int, s: int) -> Any:
    """Where the key, or value, of place s lies."""
    size = held.shape[2]
    return address(held, blocks[s // size % len(blocks)]) + 4 * held.shape[3] * (k * size + s % size)


@compiled
def _heads_from(task: int, last: int, heads: int, group: int) -> int:
    """How many tasks from this one on are of one row and of heads that share keys."""
    return min(last - task, group - task % heads % group)


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
    heads = scores.shape[1]
    group, tasks = heads // keys.shape[1], rows.n * heads
    task, last = part * tasks // parts, (part + 1) * tasks // parts
    while task < last:
        r, h, together = task // heads, task % heads, _heads_from(task, last, heads, group)
        end = rows.position[r] + 1
        begin, own = max(rows.first[r], end - window), blocks[rows.sequence[r]]
        shared = (h // group, own, begin, end, scale, cap, bias, h, h + together)
        _mix(query[r], keys, values, *shared, scores[r], out[r])
        task += together


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
    heads = scores.shape[1]
    group, tasks = heads // keys.shape[1], rows.n * heads
    task, last_task = part * tasks // parts, (part + 1) * tasks // parts
    while task < last_task:
        r, h, together = task // heads, task % heads, _heads_from(task, last_task, heads, group)
        end, own = last[rows.source[r]] + 1, rows.source[r : r + 1]
        shared = (h // group, own, 0, end, scale, cap, scores[0, 0:0], h, h + together)
        _mix(query[r], keys, values, *shared, scores[r], out[r])
        task += together
