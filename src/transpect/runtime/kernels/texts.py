"""Whole texts, with tokens as lanes: what an encoder computes token by token.

Axes: P panels, C tokens of a panel, D width in, N width out.

A pass holds its tokens as [P, D, C]: the tokens of all texts follow each other without padding, C of them stand beside
each other. Everything is then done to vectors of tokens. In a product a number of a weight meets C tokens, so weights
are read as they lie, row by row, and nothing is turned or packed; a norm sums down the columns; and what a token gets
depends on no other one. The last panel is filled up with tokens that mean nothing.

A buffer of width D is an array [P, (D + `ROWS`)·C], as products write, and attention reads, some rows behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transpect.runtime.compiling import compiled
from transpect.runtime.machine import kernel
from transpect.runtime.numeric import Number, activate_all
from transpect.runtime.products import restore
from transpect.runtime.products.float_rows import float_rows
from transpect.runtime.products.kernel import address
from transpect.runtime.products.lane_norms import layer_norm_tile, rms_norm_tile
from transpect.runtime.products.tiles import COLUMNS, ROWS, floats_anew, floats_tile

Array = Any
TOGETHER = 8 * ROWS
"""Rows of weights that stay in the second cache while all panels meet them."""
DEPTH = 256
"""Columns of weights at a time: those of a tile, and of a panel, fit into the nearest cache."""
LINEAR = -1
"""The kind of no activation."""


@kernel()
def look_up_texts(
    table: Any, factor: Number, types: Array, positions: Array, width: int, out: Array, rows: Any, part: int, parts: int
) -> None:
    """out ← factor · the token's row of the table [V, D] + that of its type + that of its position; empty tables add
    nothing."""
    own = np.empty(width, np.float32)
    for t in range(part * COLUMNS, rows.panels * COLUMNS):
        panel, lane = t // COLUMNS, t % COLUMNS
        if panel % parts != part:
            continue
        own[:] = np.float32(0.0)
        if t < rows.tokens:
            restore(table, rows.token[t], factor, own)
            if len(types):
                _add(types[rows.type[t]], own)
            if len(positions):
                _add(positions[rows.position[t]], own)
        for d in range(width):
            out[panel, COLUMNS * d + lane] = own[d]


@compiled
def _add(x: Array, out: Array) -> None:
    for d in range(len(x)):
        out[d] += x[d]


@kernel()
def linear_texts(
    weight: Any,
    n: int,
    width: int,
    bias: Array,
    kind: int,
    x: Array,
    more: bool,
    out: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """out ← act(W·x + bias), or out + that without an activation for ``more``; an empty bias is none.

    Args:
        kind: of an activation, or `LINEAR`.
    """
    _multiply(weight, n, width, bias, kind, x, more, out, rows.panels, part, parts)


@kernel()
def project_texts(query: Any, key: Any, value: Any, width: int, x: Array, rows: Any, part: int, parts: int) -> None:
    """Three of `linear_texts` of the same x, each (weight, N, bias, out): threads wait for each other once."""
    _multiply(query[0], query[1], width, query[2], LINEAR, x, False, query[3], rows.panels, part, parts)
    _multiply(key[0], key[1], width, key[2], LINEAR, x, False, key[3], rows.panels, part, parts)
    _multiply(value[0], value[1], width, value[2], LINEAR, x, False, value[3], rows.panels, part, parts)


@kernel()
def gated_texts(
    gate: Any,
    up: Any,
    n: int,
    width: int,
    kind: int,
    x: Array,
    linear_part: Array,
    out: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """out ← act(G·x + g) ⊙ (U·x + u), each (weight, bias)."""
    _multiply(gate[0], n, width, gate[1], kind, x, False, out, rows.panels, part, parts)
    _multiply(up[0], n, width, up[1], LINEAR, x, False, linear_part, rows.panels, part, parts)
    first, last = _share(n, part, parts)
    for p in range(rows.panels):
        for i in range(COLUMNS * first, COLUMNS * min(n, last)):
            out[p, i] *= linear_part[p, i]


@compiled
def _share(n: int, part: int, parts: int) -> tuple[int, int]:
    """Outputs of a thread, in whole tiles."""
    tiles = (n + ROWS - 1) // ROWS
    return ROWS * (part * tiles // parts), ROWS * ((part + 1) * tiles // parts)


@compiled
def _multiply(
    weight: Any,
    n: int,
    width: int,
    bias: Array,
    kind: int,
    x: Array,
    more: bool,
    out: Array,
    panels: int,
    part: int,
    parts: int,
) -> None:
    first, last = _share(n, part, parts)
    room, step, of_row = np.empty((TOGETHER, width), np.float32), 4 * COLUMNS, 4 * width
    for m in range(first, last, TOGETHER):
        count = min(TOGETHER, last - m)
        real = min(count, n - m)
        weights = float_rows(weight, m, real, room[:count])
        for d in range(0, width, DEPTH):
            depth = min(DEPTH, width - d)
            for p in range(panels):
                panel, to = address(x, p) + step * d, address(out, p) + step * m
                for r in range(0, count, ROWS):
                    own = weights + of_row * r + 4 * d, of_row, 4
                    tile = (*own, panel, step, depth, to + step * r, step)
                    if more or d:
                        floats_tile(tile)
                    else:
                        floats_anew(tile)
        for p in range(panels):
            own = out[p, COLUMNS * m : COLUMNS * (m + real)]
            if len(bias):
                for i in range(real):
                    for c in range(COLUMNS):
                        own[COLUMNS * i + c] += bias[m + i]
            if kind != LINEAR:
                activate_all(kind, own)


@kernel()
def norm_texts(
    weight: Array,
    bias: Array,
    of: Array,
    centred: bool,
    times: int,
    x: Array,
    out: Array,
    rows: Any,
    part: int,
    parts: int,
) -> None:
    """out ← (x − mean) / √(var + eps) · weight + bias, for each of a token's ``times`` parts; of a mean of 0 where it
    is not ``centred``.

    Args:
        of: 1/D and eps.
    """
    n = len(weight)
    own = address(weight, 0), address(bias, 0), address(of, 0)
    for task in range(part, rows.panels * times, parts):
        panel, step = task // times, 4 * COLUMNS * n * (task % times)
        tile = (address(x, panel) + step, n, *own, address(out, panel) + step)
        if centred:
            layer_norm_tile(tile)
        else:
            rms_norm_tile(tile)


@kernel()
def add_texts(x: Array, width: int, out: Array, rows: Any, part: int, parts: int) -> None:
    """out ← out + x."""
    for p in range(part, rows.panels, parts):
        for i in range(COLUMNS * width):
            out[p, i] += x[p, i]


@kernel()
def clamp_texts(limit: Number, width: int, x: Array, rows: Any, part: int, parts: int) -> None:
    """x ← x held within ±limit."""
    for p in range(part, rows.panels, parts):
        for i in range(COLUMNS * width):
            x[p, i] = np.float32(min(max(x[p, i], -limit), limit))


@kernel()
def pool_texts(kind: int, x: Array, out: Array, rows: Any, part: int, parts: int) -> None:
    """out [B, D] ← of each text the mean over its tokens (`kind` 0), its first token (1) or its last one (2)."""
    for b in range(part, rows.texts, parts):
        begin, end = rows.begin[b], rows.begin[b + 1]
        begin, end = (begin, begin + 1) if kind == 1 else (end - 1 if kind == 2 else begin, end)
        own = out[b]
        own[:] = np.float32(0.0)
        for t in range(begin, end):
            panel, lane = x[t // COLUMNS], t % COLUMNS
            for d in range(len(own)):
                own[d] += panel[COLUMNS * d + lane]
        for d in range(len(own)):
            own[d] /= np.float32(end - begin)


@kernel()
def rows_of_texts(x: Array, out: Array, rows: Any, part: int, parts: int) -> None:
    """out [T, D] ← the vector of each token."""
    for t in range(part, rows.tokens, parts):
        panel, lane = x[t // COLUMNS], t % COLUMNS
        for d in range(out.shape[1]):
            out[t, d] = panel[COLUMNS * d + lane]
