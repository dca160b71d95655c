"""The tags of the last columns, which what holds something of these columns has in common.

Axes: B batch, T new.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transpect.base.checks import at_least
from transpect.base.errors import MaskError
from transpect.core.tags import Tags


class Recent:
    """Keeps tags from pass to pass.

    Args:
        limit: how many columns to keep, M.
    """

    def __init__(self, limit: int) -> None:
        at_least("memory", limit, 0)
        self.limit = limit
        self._next: Tensor | int | None = 0
        self._tags: Tags | None = None

    @property
    def length(self) -> int:
        """How many columns are remembered."""
        return 0 if self._tags is None else self._tags.shape[1]

    @property
    def next_position(self) -> Tensor | int:
        """The position after the last real token, remembered or not.

        Raises:
            MaskError: rows of several packed documents, of which any might go on.
        """
        if self._next is None:
            raise MaskError(
                "rows of several packed documents have no single next position",
                remedy="State the tags of the tokens that follow.",
            )
        return self._next

    def admit(self, tags: Tags) -> Tags:
        """Give the tags of remembered and new tokens together, and remember the last of them."""
        together = tags if self._tags is None else self._tags.join(tags)
        self._next = self._after(together)
        kept = min(self.limit, together.shape[1])
        self._tags = together.columns(slice(together.shape[1] - kept, None))
        return together

    def _after(self, together: Tags) -> Tensor | int | None:
        """What `next_position` becomes; None where rows hold several documents."""
        try:
            fresh = together.after()
        except MaskError:
            return None
        if isinstance(fresh, int) or self._next is None:
            return fresh
        return later(fresh, self._next)  # the last real token of a row may no longer be remembered


def later(fresh: Tensor, before: Tensor | int) -> Tensor:
    """The next position of each row [B, 1], where a row may have brought nothing but padding."""
    return torch.maximum(fresh, fresh * 0 + before)


def alike(position: Tensor) -> Tensor | int:
    """The next position of each row [B, 1]: a number where it is the same in all rows."""
    same = len(position) > 0 and bool((position == position[0]).all())
    return int(position[0]) if same else position
