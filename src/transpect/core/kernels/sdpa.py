"""torch's fused scaled-dot-product attention (FlashAttention, Dao et al. 2022, where the device has it)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from transpect.base.errors import ConfigError
from transpect.core.kernels.base import Demands, Kernel, See
from transpect.core.view import View


@dataclass(frozen=True)
class Sdpa(Kernel, kind="sdpa"):
    """The fused causal path where the rule allows it, no mask where everything is visible, a mask otherwise."""

    def check(self, demands: Demands) -> None:
        if demands.soft_cap is not None:
            raise ConfigError(
                "the kernel `sdpa` can't cap logits",
                value=f"soft_cap={demands.soft_cap}",
                remedy="Choose `kernel: naive`, or leave soft_cap out.",
            )

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        view: View,
        *,
        bias: Tensor | None,
        scale: float,
        soft_cap: float | None,
        dropout: float,
        see: See,
    ) -> Tensor:
        grouped = query.shape[1] != key.shape[1]
        triangle = view.triangle and bias is None
        if triangle or (view.everything and bias is None):
            mask = None
        else:
            mask = view.opened if bias is None else view.biased(bias)
        out = functional.scaled_dot_product_attention(
            query, key, value, mask, dropout, is_causal=triangle, scale=scale, enable_gqa=grouped
        )
        # without padding and under a known rule every query sees a key: itself, or everything
        return out if triangle or view.everything else out.masked_fill(view.blind, 0.0)
