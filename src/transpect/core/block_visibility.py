"""Rules in blocks of tokens, of which BigBird (Zaheer et al. 2020, §2) is made; they compose and draw as all rules do::

    print((Blocks(2) | EdgeBlocks(2) | RandomBlocks(2, n=1, seed=0)).draw(20))

Axes: B batch, T query, S key, N blocks.

Block b of a sequence holds the positions ``b·size … (b+1)·size−1``. Where its last block lies depends on its length
(`Tags.horizon`), so a rule that asks for it gives the same mask for a token wherever the padding stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.checks import within
from transpect.core.recording import recording
from transpect.core.spans import Range, Spans, gaps
from transpect.core.tags import Tags
from transpect.core.visibility import Visibility

MOST_BLOCKS = 1000
"""The most that a token may see of blocks, at random or to either side; `RandomBlocks.probe` reaches over them all."""


@dataclass(frozen=True)
class UpTo(Visibility, kind="up_to"):
    """Everyone sees everyone in a sequence of at most ``length`` tokens, and nobody in a longer one."""

    length: int

    def __post_init__(self) -> None:
        within("UpTo.length", self.length)

    @property
    def reads_length(self) -> bool:
        return True

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return key.horizon <= self.length

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        short = (key.horizon <= self.length)[:, None, None].expand(-1, query.first.shape[1], key.first.shape[1])
        return short, short


@dataclass(frozen=True)
class Blocks(Visibility, kind="blocks"):
    """|block(i) − block(j)| ≤ reach: the query's own block and its neighbours.

    Attributes:
        size: of a block, in tokens.
        reach: how many blocks on either side.
    """

    size: int
    reach: int = 1

    def __post_init__(self) -> None:
        within("Blocks.size", self.size)
        within("Blocks.reach", self.reach, 0)

    @property
    def probe(self) -> tuple[int, ...]:
        return (*super().probe, *range(0, 2 * self.size, self.size))

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return (blocks(query, self.size) - blocks(key, self.size)).abs() <= self.reach

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        least, most = gaps(_blocks_of(query, self.size), _blocks_of(key, self.size))
        return (least <= self.reach) & (most >= -self.reach), (least >= -self.reach) & (most <= self.reach)


@dataclass(frozen=True)
class EdgeBlocks(Visibility, kind="edge_blocks"):
    """The first and the last block of a sequence see everything and are seen by everyone (BigBird-ITC)."""

    size: int

    def __post_init__(self) -> None:
        within("EdgeBlocks.size", self.size)

    @property
    def reads_length(self) -> bool:
        return True

    def sees(self, query: Tags, key: Tags) -> Tensor:
        last = last_block(key, self.size)
        of_query, of_key = (at_edge(blocks(tags, self.size), last) for tags in (query, key))
        return of_query | of_key

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        last = last_block(key, self.size)
        (q_some, q_every), (k_some, k_every) = (
            _reaches_edge(*_blocks_of(spans, self.size), last) for spans in (query, key)
        )
        return q_some[:, :, None] | k_some[:, None, :], q_every[:, :, None] | k_every[:, None, :]


@dataclass(frozen=True)
class RandomBlocks(Visibility, kind="random_blocks"):
    """Each block sees ``n`` others, drawn from those that it does not see anyway: neither within ``reach`` nor at an
    edge of the sequence. All of them where there are fewer.

    The draw is a function of the seed, the two blocks and how many there are, and of nothing else: the same in every
    pass, on every device, with and without padding. It is one for all heads; layers differ by their seeds.

    Attributes:
        size: of a block, in tokens.
        n: how many blocks are drawn.
        seed: of the draw.
        reach: as in `Blocks`.
    """

    size: int
    n: int
    seed: int
    reach: int = 1

    def __post_init__(self) -> None:
        within("RandomBlocks.size", self.size)
        within("RandomBlocks.n", self.n, 1, MOST_BLOCKS)
        within("RandomBlocks.reach", self.reach, 0, MOST_BLOCKS)

    @property
    def probe(self) -> tuple[int, ...]:
        return (*super().probe, *range(0, (self.n + 2 * self.reach + 4) * self.size, self.size))

    @property
    def reads_length(self) -> bool:
        return True

    def sees(self, query: Tags, key: Tags) -> Tensor:
        return self.settled(query, key).sees(query, key)

    def settled(self, query: Tags, key: Tags) -> Visibility:
        q, k = (blocks(tags, self.size) for tags in (query, key))
        return _Drawn(self.size, *self._drawn(last_block(key, self.size).flatten(), q, k))

    def bounds(self, query: Spans, key: Spans) -> tuple[Tensor, Tensor]:
        (q, q_last), (k, k_last) = (_blocks_of(spans, self.size) for spans in (query, key))
        # of a run without tokens nothing is asked
        q, k, q_end, k_end = q.clamp(max=q_last.clamp(min=0)), k.clamp(max=k_last.clamp(min=0)), q_last + 1, k_last + 1
        last = last_block(key, self.size)
        drawn, of_last = self._drawn(last, q_last, k_last)
        of_row = of_last[last]
        # [N+1, N+1]: how many are drawn above and left of a corner, so that four of them count those of a rectangle
        corner = functional.pad(drawn.long().cumsum(-1).cumsum(-2), (1, 0, 1, 0))

        def at(q: Tensor, k: Tensor) -> Tensor:
            return corner[of_row[:, None, None], q[:, :, None], k[:, None, :]]

        count = at(q_end, k_end) - at(q, k_end) - at(q_end, k) + at(q, k)
        return count > 0, count == (q_end - q)[:, :, None] * (k_end - k)[:, None, :]

    def _drawn(self, last: Tensor, *used: Tensor) -> tuple[Tensor, Tensor]:
        """[R, N, N] as `draws`, with N above every block used; and [N], which of the R is for which last block."""
        present = [block.amax() for block in (last, *used) if block.numel()]
        n_blocks = int(torch.stack(present).amax()) + 1 if present else 1
        if recording():  # in which what is kept would be a part of the graph
            return self.draws(n_blocks, last), _places(last, n_blocks)
        return _kept_draws(self, n_blocks, tuple(sorted(set(last.tolist()))), last.device)

    def draws(self, n_blocks: int, last: Tensor) -> Tensor:
        """[B, N, N] bool: which blocks (columns) a block (row) draws in sequences that end with block ``last`` [B]."""
        block = torch.arange(n_blocks, device=last.device)
        legal = (block[:, None] - block[None, :]).abs() > self.reach
        legal = legal & (block > 0) & (block < last[:, None])[:, None, :]  # [B, N, N]
        pair = block[:, None] * 0x1_0000_0000 + block[None, :]
        lot = mixed(mixed(torch.full_like(pair, self.seed)) ^ pair)
        rank = lot.masked_fill(~legal, torch.iinfo(torch.int64).min).argsort(-1, descending=True).argsort(-1)
        return legal & (rank < self.n)


@lru_cache(maxsize=64)
def _kept_draws(
    rule: RandomBlocks, n_blocks: int, last: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):  # training may use it later
        lasts = torch.tensor(last, dtype=torch.int64, device=device)
        return rule.draws(n_blocks, lasts), _places(lasts, n_blocks)


def _places(last: Tensor, n_blocks: int) -> Tensor:
    """[N]: where in ``last`` a number stands; 0 for others."""
    return last.new_zeros(n_blocks).index_put((last,), torch.arange(len(last), device=last.device))


@dataclass(frozen=True, eq=False)
class _Drawn(Visibility):
    """`RandomBlocks` of which the draws are made: ``drawn`` [R, N, N], and which of the R is ``of_last`` block [N]."""

    size: int
    drawn: Tensor
    of_last: Tensor

    def sees(self, query: Tags, key: Tags) -> Tensor:
        q, k = (blocks(tags, self.size).clamp(min=0) for tags in (query, key))
        return self.drawn[self.of_last[last_block(key, self.size)], q, k]


def blocks(tags: Tags, size: int) -> Tensor:
    """The block of each token; −1 for padding."""
    return tags.position.div(size, rounding_mode="floor")


def last_block(tags: Tags | Spans, size: int) -> Tensor:
    """The last block of each sequence."""
    return (tags.horizon - 1).clamp(min=0) // size


def at_edge(block: Tensor, last: Tensor) -> Tensor:
    """Whether a block is its sequence's first or last one."""
    return (block == 0) | (block == last)


def _blocks_of(spans: Spans, size: int) -> Range:
    return spans.first.div(size, rounding_mode="floor"), spans.last.div(size, rounding_mode="floor")


def _reaches_edge(low: Tensor, high: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """[B, N] each: whether some block from ``low`` to ``high`` is its sequence's first or last one; whether all are."""
    last = last[:, None]
    ends = ((low == 0) | (low == last)) & ((high == 0) | (high == last))
    return (low == 0) | ((low <= last) & (last <= high)), ends & (high - low <= 1)


def mixed(x: Tensor) -> Tensor:
    """Whole numbers of 64 bits to ones that look random (the finaliser of SplitMix64, Steele et al. 2014, §4)."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # without the sign's copies


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
