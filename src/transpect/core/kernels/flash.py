"""FlashAttention: exact attention without a matrix of scores (Dao et al. 2022; block-sparse as in its §3.3).

Axes: B batch, T query, S key (t and s of a tile), H heads, K key-value heads, G = H/K, E head.

The scores are made tile by tile and thrown away. A softmax over tiles needs the largest score of a row, which is known
only when all tiles are seen; so each row keeps the largest score so far, ``top``, and rescales what it has summed when
a larger one turns up (Milakov and Gimelshein 2018, online softmax):

    top' = max(top, max_s score)          w = exp(score − top')          fade = exp(top − top')
    total ← fade · total + Σ_s w          out ← fade · out + w v

and in the end ``out / total`` is the attention, ``lse = top + log total`` all that is kept of its weights. (The paper
goes through the keys outside and the queries inside, and divides at each step; to go through the keys of one run of
queries, divide once and keep ``lse`` alone is FlashAttention-2, Dao 2023, §3.1.) The backward pass makes each tile anew
from it (appendix B.4):

    p = exp(score − lse)     d(score) = p ⊙ (do vᵀ − Σ_e do ⊙ out)
    dv += pᵀ do              dq += scale · d(score) k      dk += scale · d(score)ᵀ q

Memory grows with T + S, not with T·S. Which tiles there are is the plan of the rule of visibility: hidden ones are left
out. `block_sparse` is the same algorithm with tiles as wide as what a row of blocks sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transpect.base.checks import within
from transpect.core.kernels.autocast import as_it_is, lowered
from transpect.core.kernels.base import Exact, Scoring
from transpect.core.kernels.fused import fused, is_plain
from transpect.core.kernels.tiles import TileScores, add_to, exponential_, fold, product, wide_dtype
from transpect.core.plan import Tile
from transpect.core.tags import Columns
from transpect.core.view import View


@dataclass(frozen=True)
class Flash(Exact, kind="flash"):
    """Attention in square tiles, O(T + S) memory forward and backward, under any rule, bias and cap.

    Attributes:
        block: queries and keys of a tile.
        fused: what torch's fused kernels can do (`is_plain`) is left to them, for speed.
    """

    block: int = 128
    fused: bool = True

    def __post_init__(self) -> None:
        within("Flash.block", self.block)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        if self.fused and is_plain(view, scoring):
            return fused(query, key, value, scoring, causal=view.triangle)
        return attend_tiles(query, key, value, view, scoring, tiles(view, self.block, self.block))


def attend_tiles(
    query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring, tiles: Sequence[Tile]
) -> Tensor:
    """Attention by tiles that hold each visible pair of query and key once; arguments as for `Way.attend`."""
    seed = int(torch.randint(2**62, ())) if scoring.dropout else 0
    scores = TileScores(view, scoring, seed)
    inputs = () if scoring.bias is None else scoring.bias.inputs
    query, key, value = lowered(query, key, value)
    with as_it_is(query.device):
        out: Tensor = TiledAttention.apply(scores, tiles, query, key, value, *inputs)  # type: ignore[no-untyped-call]
    return out


class TiledAttention(torch.autograd.Function):
    """The two passes."""

    @staticmethod
    def forward(
        ctx: Any, scores: TileScores, tiles: Sequence[Tile], query: Tensor, key: Tensor, value: Tensor, *inputs: Tensor
    ) -> Tensor:
        q = fold(query, key)  # [B, K, G, T, E]
        out = torch.zeros(*q.shape[:-1], value.shape[-1], dtype=wide_dtype(q), device=q.device)
        total = out.new_zeros(q.shape[:-1])
        top = torch.full_like(total, -torch.inf)
        for number, tile in enumerate(tiles):
            rows = tile.rows
            weights = scores.of(q[..., rows, :], key[:, :, tile.columns], inputs, tile)  # [B, K, G, t, s]
            highest = torch.maximum(top[..., rows], weights.amax(-1))
            finite = highest.masked_fill(highest == -torch.inf, 0.0)  # where nothing has been visible so far
            exponential_(weights.sub_(finite[..., None]))
            fade = exponential_(top[..., rows] - finite)
            total[..., rows] = fade * total[..., rows] + weights.sum(-1)
            seen = product(scores.dropped(weights, number).to(value.dtype), value[:, :, tile.columns])
            out[..., rows, :] = fade[..., None] * out[..., rows, :] + seen
            top[..., rows] = highest
        blind = total == 0.0
        out = out.div_(total.masked_fill(blind, 1.0)[..., None]).to(q.dtype)
        lse = (top + total.log()).masked_fill(blind, 0.0)
        ctx.save_for_backward(query, key, value, out, lse, *inputs)
        ctx.scores, ctx.tiles = scores, tiles
        return out.flatten(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse, *rest = ctx.saved_tensors
        scores, inputs = ctx.scores, tuple(rest)
        q, do = fold(query, key), fold(grad_out, key)
        dq = torch.zeros(q.shape, dtype=lse.dtype, device=q.device)
        dk, dv = (torch.zeros(x.shape, dtype=lse.dtype, device=x.device) for x in (key, value))
        sums = tuple(torch.zeros_like(x, dtype=wide_dtype(x)) for x in inputs)
        with as_it_is(query.device):
            for number, tile in enumerate(ctx.tiles):
                rows, columns = tile.rows, tile.columns
                q_tile, do_tile, k_tile = q[..., rows, :], do[..., rows, :], key[:, :, columns]
                shift = (do_tile.to(lse.dtype) * out[..., rows, :]).sum(-1, keepdim=True)  # Σ_e do ⊙ out
                p = exponential_(scores.of(q_tile, k_tile, inputs, tile).sub_(lse[..., rows, None]))
                kept = scores.dropped(p, number).to(value.dtype)
                add_to(dv, columns, kept.flatten(2, 3).mT @ do_tile.flatten(2, 3))
                dp = scores.dropped(product(do_tile, value[:, :, columns].mT).to(p.dtype), number)
                ds = p.mul_(dp.sub_(shift))
                dq_tile, dk_tile = scores.backward(ds, q_tile, k_tile, inputs, sums, tile)
                dq[..., rows, :] += dq_tile
                add_to(dk, columns, dk_tile)
        grads = (dq.flatten(1, 2), dk, dv, *sums)
        return None, None, *(grad.to(x.dtype) for grad, x in zip(grads, (query, key, value, *inputs), strict=True))


def tiles(view: View, block: int, widest: int) -> list[Tile]:
    """All tiles of a view, of at most ``widest`` keys; made once, so that layers share their masks too."""
    rows = view.plan(block, block)
    return view.once(("tiles", block, widest), lambda: [part for row in rows for part in cut(row, block, widest)])


def cut(tile: Tile, block: int, widest: int) -> Iterator[Tile]:
    """A tile of blocks of keys in parts of at most ``widest`` keys, or of one block."""
    n = max(1, widest // block)
    for first in range(0, len(tile.wholes), n):
        yield Tile(tile.rows, part(tile.columns, first * block, n * block), tile.wholes[first : first + n])


def part(columns: Columns, start: int, length: int) -> Columns:
    """``length`` of these columns, from the one numbered ``start`` on."""
    if isinstance(columns, Tensor):
        return columns[start : start + length]
    first = columns.start + start
    return slice(first, min(first + length, columns.stop))
