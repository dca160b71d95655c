"""Attention in time and memory proportional to the blocks that the rule shows (Zaheer et al. 2020, appendix D; Dao et
al. 2022, §3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from transpect.base.checks import within
from transpect.core.kernels.base import Exact, Scoring
from transpect.core.kernels.flash import attend_tiles, tiles
from transpect.core.view import View


@dataclass(frozen=True)
class BlockSparse(Exact, kind="block_sparse"):
    """Each block of queries meets at once all blocks of keys that the rule shows it, and no others.

    Which those are comes from the rule (`Visibility.bounds`): windows, dilated ones, global tokens, random blocks,
    prefixes, packed documents and whatever ``&`` and ``|`` make of them. A pair within a visible block is still decided
    by the rule itself. The arithmetic is that of `flash`, whose tiles it takes as wide as they come.

    Attributes:
        block: queries, and keys, of a block.
        widest: keys of a tile at most, which bounds the memory of queries that see everything.
    """

    block: int = 128
    widest: int = 4096

    def __post_init__(self) -> None:
        within("BlockSparse.block", self.block)
        within("BlockSparse.widest", self.widest)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        return attend_tiles(query, key, value, view, scoring, tiles(view, self.block, self.widest))
