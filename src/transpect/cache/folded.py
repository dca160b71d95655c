"""What `SinksCache` holds once tokens have fallen out between sinks and window.

Axes: B batch, n sinks, W window, S = n + W, K key-value heads, E head.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import torch
from torch import Tensor

from transpect.cache.columns import arranged, blanked, unpadded
from transpect.cache.dense import DenseCache
from transpect.cache.recent import alike, later
from transpect.core.positions import Mover
from transpect.core.tags import Tags


class Folded:
    """Of each row its first n tokens, side by side whatever their columns were, and the columns of its last ones.

    Args:
        whole: all columns so far.
        n_sinks: n.
        limit: M.
    """

    def __init__(self, whole: DenseCache, n_sinks: int, limit: int) -> None:
        tags = whole.tags
        assert tags is not None, "something has been read"
        self.n_sinks, self.limit = n_sinks, limit
        self._slots = torch.arange(n_sinks, device=tags.position.device)
        self._next = whole.next_position
        at = tags.position[:, None] == self._slots[:, None]  # [B, n, S]
        where = at.long().argmax(-1)  # [B, n]
        self._sinks = blanked(arranged(tags, where), ~at.any(-1))
        index = where[:, None, :, None]
        of_sinks = [
            {layer: x.gather(2, index.expand(-1, x.shape[1], -1, x.shape[3])) for layer, x in columns.items()}
            for columns in whole.columns()
        ]
        if tags.start == 0:
            first, self._window = n_sinks, tags.columns(slice(n_sinks, None))
        else:
            first, self._window = 0, blanked(tags, self._sinking(tags))
        of_window = [{layer: x[:, :, first:].clone() for layer, x in columns.items()} for columns in whole.columns()]
        # keys and values of the sinks, then those of the window; replaced and never written to
        self._stores: list[dict[int, Tensor]] = [*of_sinks, *of_window]
        self._drop, self._by = 0, where.new_zeros(1)
        self._into: Tensor | None = None

    @property
    def length(self) -> int:
        """S."""
        return self.n_sinks + self._window.shape[1]

    @property
    def next_position(self) -> Tensor | int:
        """The position after the last real token: a number where all rows agree, else [B, 1]."""
        return self._next

    @property
    def nbytes(self) -> int:
        """Memory of keys and values in bytes."""
        return sum(x.nbytes for store in self._stores for x in store.values())

    def admit(self, tags: Tags) -> Tags:
        """Note a token a row, give the tags of all keys: what has fallen out is padding, sinks stand before it."""
        after = tags.after()
        if isinstance(after, int) and isinstance(self._next, int) and self._window.start is not None:
            return self._admit_alike(tags, after, self._window.start)
        self._next = later(torch.as_tensor(after, device=self._slots.device).expand(tags.shape), self._next)
        return self._admit_each(tags, self._next - 1)

    def extend(self, layer: int, key: Tensor, value: Tensor, move: Mover) -> tuple[Tensor, Tensor]:
        """Add one layer's new key and value [B, K, 1, E]; give all of them [B, K, S, E]."""
        sinks = [self._sunk(which, layer, new) for which, new in enumerate((key, value))]
        window = [self._slid(which, layer, new) for which, new in enumerate((key, value), 2)]
        return torch.cat([move(sinks[0], self._by), window[0]], 2), torch.cat([sinks[1], window[1]], 2)

    def compact(self) -> None:
        """Forget the first columns of the window that hold nothing of any row, and note where rows are alike again."""
        empty = _empty(self._window)
        self._window = unpadded(self._window.columns(slice(empty, None)))
        for store in self._stores[2:]:
            store.update({layer: x[:, :, empty:].clone() for layer, x in store.items()})
        if isinstance(self._next, Tensor):
            self._next = alike(self._next)

    def select(self, rows: Tensor) -> None:
        """Keep these rows [B'], in that order."""
        self._sinks, self._window = self._sinks.rows(rows), self._window.rows(rows)
        self._stores = [{layer: x[rows] for layer, x in store.items()} for store in self._stores]
        if isinstance(self._next, Tensor):
            self._next = self._next[rows]

    def fork(self) -> Folded:
        """An independent copy."""
        twin = copy(self)
        twin._stores = [dict(store) for store in self._stores]
        return twin

    def _admit_alike(self, tags: Tags, after: int, start: int) -> Tags:
        """All rows are one run of tokens: so are the sinks, as moved, and the window."""
        last = after - 1
        self._next, self._into = after, None
        self._drop = max(0, last - self.limit - start)
        self._window = self._window.columns(slice(self._drop, None)).join(tags)
        dropped = max(0, last - self.n_sinks - self.limit)
        self._by = self._slots.new_full((1,), dropped)
        dense = Tags.dense(tags.shape[0], self.length, start=dropped, device=self._slots.device)
        return replace(dense, horizon=self._window.horizon)

    def _admit_each(self, tags: Tags, last: Tensor) -> Tags:
        sinking, self._into = self._sinking(tags), None  # [B, 1]
        if bool(sinking.any()):  # a row that is shorter than that, beside a long one
            self._into = sinking & (tags.position == self._slots)  # [B, n]
            self._sinks = replace(self._sinks, position=torch.where(self._into, self._slots, self._sinks.position))
            tags = blanked(tags, sinking)
        window = blanked(self._window, self._window.position < last - self.limit)
        self._drop = _empty(window)
        self._window = window.columns(slice(self._drop, None)).join(tags)
        by = (last - self.n_sinks - self.limit).clamp(min=0)  # [B, 1]
        self._by = by[:, 0]
        filled = self._sinks.position >= 0
        return replace(self._sinks, position=torch.where(filled, self._slots + by, -1)).join(self._window)

    def _sinking(self, tags: Tags) -> Tensor:
        return (tags.position >= 0) & (tags.position < self.n_sinks)

    def _sunk(self, which: int, layer: int, new: Tensor) -> Tensor:
        store = self._stores[which]
        if self._into is not None:
            store[layer] = torch.where(self._into[:, None, :, None], new, store[layer])
        return store[layer]

    def _slid(self, which: int, layer: int, new: Tensor) -> Tensor:
        store = self._stores[which]
        store[layer] = torch.cat([store[layer][:, :, self._drop :], new], 2)
        return store[layer]


def _empty(tags: Tags) -> int:
    """How many of the first columns hold nothing of any row."""
    real = (tags.position >= 0).any(0)
    return int(real.long().argmax()) if bool(real.any()) else len(real)
