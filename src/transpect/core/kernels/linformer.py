"""Linformer: softmax attention to a fixed number of mixtures of keys (Wang et al. 2020).

Axes: B batch, T query, S key, H heads, K key-value heads, E head, r rank, L context length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from transpect.base.checks import within
from transpect.base.errors import ContextLengthError
from transpect.core.initialization import Drawn
from transpect.core.kernels.base import Demands, Kernel, Scoring, Sizes, refused
from transpect.core.kernels.linear import check_no_scores
from transpect.core.recording import recording
from transpect.core.tags import Tags
from transpect.core.view import View
from transpect.core.visibility import Full


@dataclass(frozen=True)
class Linformer(Kernel, kind="linformer"):
    """softmax(scale · q (E k)ᵀ) (F v) with learned E and F over positions, [r, L] (§4, equation 7).

    Attributes:
        rank: r, how many mixtures stand for all keys.
        share: which matrices are one and the same: ``none``, each key-value head has an E and an F; ``heads``, a layer
            has an E and an F; ``key_value``, a layer has one for both (§4, "Parameter sharing between projections").
    """

    rank: int = 256
    share: Literal["none", "heads", "key_value"] = "heads"

    def __post_init__(self) -> None:
        within("Linformer.rank", self.rank)

    def check(self, demands: Demands) -> None:
        check_no_scores(self, demands)
        if demands.visibility != Full():
            raise refused(
                self,
                "mixes all keys of a row, later ones too, so every query sees everything",
                f"visibility {demands.visibility.kind}",
                "Use the rule `full`, or another kernel.",
            )

    def shape(self, sizes: Sizes) -> tuple[int, int, int]:
        """Of one matrix: (K or 1, r, L)."""
        return sizes.kv_heads if self.share == "none" else 1, self.rank, sizes.context_length

    def numbers(self, sizes: Sizes) -> int:
        return math.prod(self.shape(sizes))

    def build(self, sizes: Sizes) -> LinformerWay:
        return LinformerWay(self, self.shape(sizes))


class LinformerWay(Drawn):
    """One layer's mixtures.

    Attributes:
        mix_keys: E, [K|1, r, L].
        mix_values: F, [K|1, r, L]; None where it is E.
    """

    def __init__(self, config: Linformer, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.mix_keys = nn.Parameter(torch.empty(shape))
        self.mix_values = None if config.share == "key_value" else nn.Parameter(torch.empty(shape))

    def draw(self, generator: torch.Generator) -> None:
        """U(±1/√r), as the package ``linformer`` does; the paper does not say."""
        for matrix in self.parameters():
            bound = 1 / math.sqrt(matrix.shape[1])
            drawn = torch.empty(matrix.shape, dtype=matrix.dtype, device="cpu")
            matrix.copy_(drawn.uniform_(-bound, bound, generator=generator))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        """See `Way.attend`.

        Raises:
            ContextLengthError: a key behind the context length.
        """
        mix_values = self.mix_keys if self.mix_values is None else self.mix_values
        keys, values = self._mixed(self.mix_keys, key, view.key), self._mixed(mix_values, value, view.key)
        grouped = query.shape[1] != key.shape[1]
        out = functional.scaled_dot_product_attention(query, keys, values, scale=scoring.scale, enable_gqa=grouped)
        # mixtures of no key are 0, and so is what a query of nothing but padding gets
        return out if view.query.start is not None else out.masked_fill(view.query.position[:, None, :, None] < 0, 0.0)

    def _mixed(self, matrix: Tensor, x: Tensor, tags: Tags) -> Tensor:
        """[B, K, S, E] -> [B, K, r, E], each column by the column of the matrix that its position names."""
        length = matrix.shape[2]
        start, columns = tags.start, tags.shape[1]
        if start is not None:
            _check_length(start + columns, length)
            return matrix[:, :, start : start + columns] @ x
        if not recording():  # there the index itself refuses, where the graph runs
            _check_length(int(tags.position.max()) + 1 if tags.position.numel() else 0, length)
        place = tags.position.clamp(min=0)[:, None, :, None].expand(x.shape)
        real = (tags.position >= 0)[:, None, :, None]
        return matrix @ x.new_zeros(*x.shape[:2], length, x.shape[3]).scatter_add(2, place, x.masked_fill(~real, 0.0))


def _check_length(needed: int, length: int) -> None:
    if needed > length:
        raise ContextLengthError(
            f"the kernel `linformer` has a column for each of {length} positions",
            value=f"{needed} tokens",
            remedy="Shorten the input, or train with a larger context_length.",
        )
