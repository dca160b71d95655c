"""torch's own fused attention: what needs no bias, no cap, and no mask but the lower triangle."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from transpect.core.kernels.base import Scoring
from transpect.core.view import View


def is_plain(view: View, scoring: Scoring) -> bool:
    """Whether torch's fused kernels compute exactly this in O(T + S) memory on every device."""
    return (view.triangle or view.everything) and scoring.bias is None and scoring.soft_cap is None


def fused(
    query: Tensor, key: Tensor, value: Tensor, scoring: Scoring, mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`; ``mask`` is bool (True is visible) or what is added."""
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        mask,
        scoring.dropout,
        is_causal=causal,
        scale=scoring.scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
