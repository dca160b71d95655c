"""The last columns, which what holds something of these columns has in common.

Axes: B batch, T new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor

from transpect.base.checks import at_least
from transpect.base.errors import ConfigError, MaskError
from transpect.cache.columns import forgetting, unpadded
from transpect.core.tags import Tags


class Recent:
    """Keeps tags from pass to pass, and of each layer what a child puts in its stores.

    What has fallen out does not come back: as long as nothing has, columns at the end may be taken back.

    Args:
        limit: how many columns to keep, M.
        n_stores: how many tensors a layer.
    """

    axis: ClassVar[int]
    """Of the columns in a stored tensor."""

    def __init__(self, limit: int, n_stores: int) -> None:
        at_least("memory", limit, 0)
        self.limit = limit
        self._next: Tensor | int | None = 0
        self._tags: Tags | None = None
        self._fell = False
        self._stores: list[dict[int, Tensor]] = [{} for _ in range(n_stores)]

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
        self._fell = self._fell or kept < together.shape[1]
        self._tags = together.columns(slice(together.shape[1] - kept, None))
        return together

    def crop(self, length: int) -> None:
        """Forget all columns from ``length`` on; 0 forgets what fell out too.

        Raises:
            ConfigError: some columns should go after others have fallen out, which would be in sight again.
        """
        if self._tags is None or length >= self.length:
            return
        if not length:
            self._tags, self._next, self._fell = None, 0, False
            self._stores = [{} for _ in self._stores]
            return
        self._check_whole(f"crop({length}) of {self.length}")
        self._tags = self._tags.columns(slice(0, length))
        self._next = self._after_all(self._tags)
        self._change(lambda held: held.narrow(self.axis, 0, length).clone())

    def forget(self, keep: Tensor) -> None:
        """See `Cache.forget`: for the last columns of all rows alike.

        Raises:
            ConfigError: columns before the end, or of some rows alone, should go, so that M columns would hold fewer
                tokens of one row than of another; or any, after others have fallen out.
        """
        if self._tags is None:
            return
        left, gone = forgetting(self._tags, keep)
        if bool(gone[:, :left].any()):
            raise ConfigError(
                "what keeps the last columns forgets them from the end, and in all rows alike",
                value=f"forget with {int(gone[:, :left].sum())} tokens before the end",
                remedy="Use DenseCache, or one row at a time.",
            )
        if bool(gone.any()):
            self.crop(left)

    def compact(self) -> None:
        """Note where rows are alike again; padding goes by itself."""
        if self._tags is not None:
            self._tags = unpadded(self._tags)
        if isinstance(self._next, Tensor):
            self._next = alike(self._next)

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all."""
        if self._tags is not None:
            self._tags = self._tags.rows(rows)
        if isinstance(self._next, Tensor):
            self._next = self._next[rows]
        self._change(lambda held: held[rows])

    def _change(self, change: Callable[[Tensor], Tensor]) -> None:
        self._stores = [{layer: change(held) for layer, held in store.items()} for store in self._stores]

    def _copy_to(self, twin: Self) -> Self:
        """Make ``twin`` an independent copy; what is stored is replaced and never written to, so it is shared."""
        twin._tags, twin._next, twin._fell = self._tags, self._next, self._fell
        twin._stores = [dict(store) for store in self._stores]
        return twin

    def _joined(self, which: int, layer: int, new: Tensor) -> tuple[Tensor, Tensor]:
        """One layer's stored and new columns together, and the last of them, which are to be stored."""
        store = self._stores[which]
        together = torch.cat([store[layer], new], self.axis) if layer in store else new
        kept = min(self.limit, together.shape[self.axis])
        return together, together.narrow(self.axis, together.shape[self.axis] - kept, kept)

    def _check_whole(self, asked: str) -> None:
        if self._fell:
            raise ConfigError(
                "what keeps the last columns can't take columns back once others have fallen out",
                value=f"{asked}, with a memory of {self.limit}",
                remedy="Take a fork before what may be taken back, or use DenseCache.",
            )

    def _after_all(self, tags: Tags) -> Tensor | int | None:
        try:
            return tags.after()
        except MaskError:
            return None

    def _after(self, together: Tags) -> Tensor | int | None:
        """What `next_position` becomes; None where rows hold several documents."""
        fresh = self._after_all(together)
        if fresh is None or isinstance(fresh, int) or self._next is None:
            return fresh
        return later(fresh, self._next)  # the last real token of a row may no longer be remembered


def later(fresh: Tensor, before: Tensor | int) -> Tensor:
    """The next position of each row [B, 1], where a row may have brought nothing but padding."""
    return torch.maximum(fresh, fresh * 0 + before)


def alike(position: Tensor) -> Tensor | int:
    """The next position of each row [B, 1]: a number where it is the same in all rows."""
    same = len(position) > 0 and bool((position == position[0]).all())
    return int(position[0]) if same else position
