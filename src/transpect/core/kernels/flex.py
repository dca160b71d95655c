"""torch's FlexAttention (Dong et al. 2024): a fused kernel that is compiled for a rule and a bias.

Axes: B batch, T query, S key, H heads, K key-value heads, E head, N distances, NQ and NK blocks of queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from transpect.base.checks import within
from transpect.base.errors import ConfigError
from transpect.core.bias import DistanceBias
from transpect.core.kernels.base import Demands, Exact, Scoring, refused
from transpect.core.kernels.flash import attend_tiles
from transpect.core.plan import visible_blocks
from transpect.core.view import View

MOST_GRAPHS = 256
"""How many compiled graphs are kept; there is one for each rule, kind of bias, dtype and kind of shape."""

TILE = 128
"""What torch cuts scores into on CUDA, at most; its blocks must be whole tiles."""

LEAST_WIDTH = 16
"""Of a head, for torch's kernels on CUDA."""

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Attend = Callable[..., Any]


@dataclass(frozen=True)
class Flex(Exact, kind="flex"):
    """Attention by a kernel that torch generates from the rule of visibility itself and from a table of the bias.

    ``mask_mod`` is the rule's own predicate (`Visibility.shows`) on the tags of one query and one key; which blocks it
    is asked about, and which are seen as a whole, is what the rule says of blocks (`Visibility.bounds`), a row of the
    batch each; a mask of T·S is never made. ``score_mod`` caps a score and adds the bias of its distance, looked up in
    a table of all N distances, through which gradients reach a learned bias.

    The first call for each rule, kind of bias and kind of shape compiles: seconds to a minute. On a CPU every shape is
    a kind of its own, and torch has no backward pass and no float64; there, `block_sparse` is what to choose.

    It is written for CUDA, forward and backward, and has been run on CPUs alone so far, forward: as torch defines it in
    float32 and float64, and compiled in float32.

    Attributes:
        block: queries, and keys, of a block.
        compiled: False computes what torch says that the kernel computes, step by step: forward, at once, in O(T·S)
            memory; to look for the cause of a difference.
    """

    block: int = TILE
    compiled: bool = True

    def __post_init__(self) -> None:
        within("Flex.block", self.block)
        if self.compiled and self.block % TILE:
            raise ConfigError(f"the blocks of a compiled `flex` are a multiple of {TILE}", value=self.block)

    @property
    def made_for(self) -> str:
        return "cuda"

    def check(self, demands: Demands) -> None:
        if demands.scores not in ("nothing", "distance"):
            raise refused(
                self,
                "adds to scores only what depends on the distance of two tokens",
                value=f"positions that add something for each {demands.scores.removesuffix('s')}",
                remedy="Choose `kernel: block_sparse` or `flash`.",
            )
        if demands.dropout:
            raise refused(
                self,
                "can't drop weights",
                value=f"dropout={demands.dropout}",
                remedy="Choose `kernel: block_sparse` or `flash`, or leave the dropout of attention out.",
            )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        self._check_call(query, key, value, scoring)
        if not query.numel() or not key.numel():  # torch asks its predicates about a first token
            return attend_tiles(query, key, value, view, scoring, [])
        if not torch.is_grad_enabled():  # torch asks what a tensor requires even where nothing is recorded
            query, key, value = query.detach(), key.detach(), value.detach()
        mask = view.once(("flex", self.block), lambda: block_mask(view, self.block))
        out: Tensor = (compiled if self.compiled else step_by_step)(
            query,
            key,
            value,
            score_mod(scoring, len(query)),
            mask,
            scale=scoring.scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out

    def _check_call(self, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> None:
        """What torch can't do, before it says so itself."""
        bias, device = scoring.bias, query.device.type
        if bias is not None and not isinstance(bias, DistanceBias):
            raise refused(
                self,
                "adds to scores only what depends on the distance of two tokens",
                value=type(bias).__name__,
                remedy="Choose `kernel: block_sparse` or `flash`.",
            )
        if scoring.dropout:
            raise refused(self, "can't drop weights", f"dropout={scoring.dropout}", "Choose `kernel: block_sparse`.")
        inputs = (query, key, value, *(() if bias is None else bias.inputs))
        differentiates = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        if differentiates and (not self.compiled or device != "cuda"):
            raise refused(
                self,
                "has a backward pass only where it is compiled for CUDA",
                value=f"{'compiled' if self.compiled else 'compiled=False'} on {device}, with gradients",
                remedy="Choose `kernel: block_sparse`, or compute under `torch.no_grad()`.",
            )
        if self.compiled and query.dtype == torch.float64:
            raise refused(
                self,
                "is not compiled for float64",
                value=f"{query.dtype} on {device}",
                remedy="Choose `kernel: block_sparse`, or `compiled=False`.",
            )
        if self.compiled and device == "cuda" and query.shape[-1] < LEAST_WIDTH:
            raise refused(
                self,
                f"needs heads of at least {LEAST_WIDTH} numbers on CUDA",
                value=query.shape[-1],
                remedy="Choose `kernel: block_sparse`.",
            )


def block_mask(view: View, size: int) -> BlockMask:
    """A view as torch wants it: lists of blocks that are seen in part and as a whole, and a predicate for the first."""
    queries, keys = view.query.shape[1], view.key.shape[1]
    rule, asking, asked = view.apart
    some, every = visible_blocks(rule, asking, asked, size, size)
    long = [torch.arange(size, n + size, size, device=some.device) <= n for n in (queries, keys)]
    full = some & every & long[0][:, None] & long[1]  # one that is cut short by the end is not
    settled = rule.settled(asking, asked)
    # rows that are alike are one in the lists of blocks, but a predicate is asked of each row
    query, key = view.query, view.key

    def shows(row: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return settled.shows(query.token(row, i), key.token(row, j))

    return BlockMask.from_kv_blocks(
        *listed(some & ~full),
        *listed(full),
        BLOCK_SIZE=size,
        mask_mod=shows,
        seq_lengths=(queries, keys),
    )


def listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """[B, NQ, NK] bool -> how many blocks each block of queries has, [B, 1, NQ], and which, [B, 1, NQ, NK]: those first
    and in order."""
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[:, None], order.to(torch.int32)[:, None].contiguous()


def score_mod(scoring: Scoring, rows: int) -> ScoreMod | None:
    """What becomes of a scaled score: cap, then bias; None where nothing does."""
    cap, bias = scoring.soft_cap, scoring.bias
    if bias is None:
        return None if cap is None else lambda score, row, head, i, j: capped(score, cap)
    assert isinstance(bias, DistanceBias)
    table, distances = bias.table, bias.distances
    query = (distances.query - distances.reach[0]).expand(rows, -1)  # so that the smallest distance has the number 0
    key = distances.key.expand(rows, -1)

    def scored(score: Tensor, row: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return capped(score, cap) + table[query[row, i] - key[row, j], head]

    return scored


def capped(score: Tensor, cap: float | None) -> Tensor:
    return score if cap is None else cap * torch.tanh(score / cap)


@lru_cache(maxsize=2)
def _compiled(dynamic: bool | None) -> Attend:
    return torch.compile(flex_attention, fullgraph=True, dynamic=dynamic)


def compiled(query: Tensor, *args: Any, **kwargs: Any) -> Any:
    # torch's C++ for lengths that vary is wrong: it takes one size's name, ks4, for the beginning of another's, ks43
    dynamic = False if query.device.type == "cpu" else None
    # A rule's numbers, the scale and the cap are constants of a graph, though torch would make inputs of what varies.
    # The limit is an error, since fullgraph asks for a graph; without that, torch would go on step by step.
    with torch._dynamo.config.patch(specialize_int=True, specialize_float=True, recompile_limit=MOST_GRAPHS):
        return _compiled(dynamic)(query, *args, **kwargs)


def step_by_step(*args: Any, **kwargs: Any) -> Any:
    with torch.compiler.set_stance("force_eager"):
        return flex_attention(*args, **kwargs)
