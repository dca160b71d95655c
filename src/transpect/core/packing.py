"""Rows of different lengths without their padding: what is computed token by token is computed for real tokens alone.

Axes: B batch, T token, N real tokens of all rows, W width.

Norms, projections and feed-forward layers treat each token by itself, so a batch can go through them as one row of real
tokens; only attention needs to know which row a token is of, and is given the padded rows (the unpadding of Zeng et al.
2022, arXiv:2208.08124, §3.1). What real tokens become is the same.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from transpect.core.tags import Tags


class Layout(Protocol):
    """How a stack holds the tokens of a batch between two attentions."""

    def pack(self, x: Tensor) -> Tensor:
        """From padded rows [B, T, W]."""

    def spread(self, x: Tensor) -> Tensor:
        """To padded rows [B, T, W]."""


class AsPadded:
    """Padded rows, as they come."""

    def pack(self, x: Tensor) -> Tensor:
        """See `Layout`."""
        return x

    def spread(self, x: Tensor) -> Tensor:
        """See `Layout`."""
        return x


class Packed:
    """One row of the real tokens of all rows, [1, N, W]; padding is 0 when they are spread again.

    Args:
        tags: of the padded rows.
    """

    def __init__(self, tags: Tags) -> None:
        self._shape = tags.shape
        self._places = (tags.position >= 0).flatten().nonzero()[:, 0]  # [N]

    def pack(self, x: Tensor) -> Tensor:
        """See `Layout`."""
        return x.flatten(0, 1).index_select(0, self._places)[None]

    def spread(self, x: Tensor) -> Tensor:
        """See `Layout`."""
        batch, length = self._shape
        padded = x.new_zeros(batch * length, x.shape[2])
        return padded.index_copy_(0, self._places, x[0]).view(batch, length, -1)


AS_PADDED: Layout = AsPadded()
