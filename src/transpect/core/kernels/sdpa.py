"""torch's fused scaled-dot-product attention (FlashAttention, Dao et al. 2022, where the device has it)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from transpect.base.checks import within
from transpect.core.kernels.base import Demands, Exact, Scoring, refused
from transpect.core.kernels.flash import attend_tiles, tiles
from transpect.core.kernels.fused import fused, is_plain
from transpect.core.view import View


@dataclass(frozen=True)
class Sdpa(Exact, kind="sdpa"):
    """The fused causal path where the rule allows it, no mask where everything is visible, a mask otherwise.

    A bias must be there as a whole for torch, and where it has a gradient torch falls back to keeping T·S scores a
    head; one of more than ``largest_bias`` numbers is therefore computed in tiles, as `flash` does.

    Attributes:
        largest_bias: H·T·S, up to which a bias is computed as a whole.
        block: queries of a tile beyond that.
        widest: keys of a tile at most.
    """

    largest_bias: int = 2**22
    block: int = 128
    widest: int = 1024

    def __post_init__(self) -> None:
        within("Sdpa.largest_bias", self.largest_bias, 0)
        within("Sdpa.block", self.block)
        within("Sdpa.widest", self.widest)

    def check(self, demands: Demands) -> None:
        if demands.soft_cap is not None:
            raise refused(
                self,
                "can't cap logits",
                value=f"soft_cap={demands.soft_cap}",
                remedy="Choose `kernel: flash` or `naive`, or leave soft_cap out.",
            )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        bias = scoring.bias
        if bias is not None and query.shape[1] * query.shape[2] * key.shape[2] > self.largest_bias:
            return attend_tiles(query, key, value, view, scoring, tiles(view, self.block, self.widest))
        if is_plain(view, scoring):  # every query sees a key: itself, or everything
            return fused(query, key, value, scoring, causal=view.triangle)
        mask = view.opened if bias is None else view.biased(bias.whole)
        return fused(query, key, value, scoring, mask).masked_fill(view.blind, 0.0)
