"""Rules in blocks of tokens, of which BigBird (Zaheer et al. 2020, §2) is made; they compose and draw as all rules do::

    print((Blocks(2) | EdgeBlocks(2) | RandomBlocks(2, n=1, seed=0)).draw(20))

Axes: B batch, T query, S key, N blocks.

Block b of a sequence holds the positions ``b·size … (b+1)·size−1``. Where its last block lies depends on its length
(`Tags.horizon`), so a rule that asks for it gives the same mask for a token wherever the padding stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.core.context import Tags
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
        return (key.horizon <= self.length)[:, None, None].expand(-1, query.shape[1], key.shape[1])


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
        q, k = blocks(query, self.size), blocks(key, self.size)
        return (q[:, :, None] - k[:, None, :]).abs() <= self.reach


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
        return of_query[:, :, None] | of_key[:, None, :]


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
        q, k = (blocks(tags, self.size).clamp(min=0) for tags in (query, key))
        last = last_block(key, self.size)
        drawn = self.draws(int(torch.stack([q.amax(), k.amax(), last.amax()]).amax()) + 1, last)  # [B, N, N]
        rows = torch.arange(len(last), device=last.device)[:, None, None]
        return drawn[rows, q[:, :, None], k[:, None, :]]

    def draws(self, n_blocks: int, last: Tensor) -> Tensor:
        """[B, N, N] bool: which blocks (columns) a block (row) draws in sequences that end with block ``last`` [B]."""
        block = torch.arange(n_blocks, device=last.device)
        legal = (block[:, None] - block[None, :]).abs() > self.reach
        legal = legal & (block > 0) & (block < last[:, None])[:, None, :]  # [B, N, N]
        pair = block[:, None] * 0x1_0000_0000 + block[None, :]
        lot = mixed(mixed(torch.full_like(pair, self.seed)) ^ pair)
        rank = lot.masked_fill(~legal, torch.iinfo(torch.int64).min).argsort(-1, descending=True).argsort(-1)
        return legal & (rank < self.n)


def blocks(tags: Tags, size: int) -> Tensor:
    """[B, T]: the block of each token; −1 for padding."""
    return tags.position.div(size, rounding_mode="floor")


def last_block(tags: Tags, size: int) -> Tensor:
    """[B]: the last block of each sequence."""
    return (tags.horizon - 1).clamp(min=0) // size


def at_edge(block: Tensor, last: Tensor) -> Tensor:
    """[B, T]: whether a block [B|1, T] is its sequence's first or last one."""
    return (block == 0) | (block == last[:, None])


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
