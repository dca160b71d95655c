"""Keys and values in buffers of one length, whose shapes never change: for steps that are compiled once.

Axes: B batch, T new, N columns there is room for, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from transpect.base.checks import within
from transpect.base.errors import ContextLengthError
from transpect.cache.columns import arranged, forgetting
from transpect.cache.source import SourceKeys
from transpect.core.context import NO_CARRY, Carry
from transpect.core.recording import recording
from transpect.core.tags import Tags


class StaticCache:
    """Writes columns by index into buffers [B, K, N, E], and shows all N of them; those that hold nothing are padding
    by their tags. How many are in use is a number on the device, so nothing that a graph is specialised on changes from
    step to step, and where as many rows are selected the buffers stay where they are. A step costs O(N).

    The buffers are made in the first pass, which is therefore not compiled. For inference: gradients do not flow
    through it. Example::

        cache = StaticCache(512)
        logits = model(prompt, cache=cache)
        step = torch.compile(lambda token: model(token, cache=cache), fullgraph=True, dynamic=False)

    Args:
        length: N.
    """

    def __init__(self, length: int) -> None:
        within("StaticCache.length", length)
        self.capacity = length
        self._tags: Tags | None = None
        self._end = torch.zeros(())
        self._where = torch.zeros(())
        self._stores: tuple[dict[int, Tensor], dict[int, Tensor]] = ({}, {})
        self._source = SourceKeys()

    @property
    def length(self) -> int:
        """How many columns are in use."""
        return 0 if self._tags is None else int(self._end)

    @property
    def next_position(self) -> Tensor | int:
        """The position after the last real token, [B, 1]; 0 where nothing is held."""
        if self._tags is None:
            return 0
        if recording():
            return self._tags.position.amax(1, keepdim=True) + 1  # nobody can look for several documents there
        return self._tags.after()

    @property
    def nbytes(self) -> int:
        """Memory of keys and values in bytes."""
        return sum(buffer.nbytes for store in self._stores for buffer in store.values())

    def admit(self, tags: Tags) -> Tags:
        """Note the new tokens, give the tags of all N columns.

        Raises:
            ContextLengthError: there are fewer free columns than tokens; nothing has been written.
        """
        new = tags.shape[1]
        held = self._reserve(tags) if self._tags is None else self._tags
        self._check_room(new)
        self._where = self._end + torch.arange(new, device=tags.position.device)
        for mine, fresh in _fields(held, tags):
            mine.index_copy_(1, self._where, fresh)
        self._end.add_(new)
        self._tags = held
        return held

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add one layer's new keys and values [B, K, T, E]; give the buffers [B, K, N, E]."""
        keys, values = self._stores
        return self._write(keys, layer, key), self._write(values, layer, value)

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        """As `extend`: all keys are here, so nothing else needs to be carried."""
        return *self.extend(layer, key, value), NO_CARRY

    def cross(self, layer: int, compute: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output, computed once a layer."""
        return self._source.get(layer, compute)

    def crop(self, length: int) -> None:
        """Forget all columns from ``length`` on; 0 lets another batch begin. What is known of an encoder's output
        stays."""
        if self._tags is None or length >= self.length:
            return
        if not length:
            self._tags, self._stores = None, ({}, {})
            return
        self._tags.position[:, length:] = -1
        self._end.fill_(length)

    def forget(self, keep: Tensor) -> None:
        """See `Cache.forget`. What is forgotten before the end of a row takes its place until `compact` or `crop`."""
        if self._tags is None:
            return
        length = self.length
        left, gone = forgetting(self._tags.columns(slice(0, length)), keep)
        self._tags.position[:, :length].masked_fill_(gone, -1)
        self.crop(left)

    def compact(self) -> None:
        """Forget as many columns as every row has of padding, wherever it stands; each row keeps its order. Columns
        are renumbered: lengths noted before are void."""
        if self._tags is None:
            return
        length = self.length
        real = self._tags.position[:, :length] >= 0
        longest = int(real.sum(1).max())
        if longest == length:
            return
        order = real.long().argsort(dim=1, stable=True)[:, length - longest :]  # [B, S']
        for mine, moved in _fields(self._tags, arranged(self._tags, order)):
            mine[:, :longest] = moved
        for store in self._stores:
            for buffer in store.values():
                where = order[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[3])
                buffer[:, :, :longest] = buffer.gather(2, where)
        self._tags.position[:, longest:] = -1
        self._end.fill_(longest)

    def select(self, rows: Tensor) -> None:
        """Keep the rows ``rows`` [B'] of the batch, in that order; a row may be chosen more than once or not at all.
        Another number of rows takes other buffers."""
        self._source = self._source.rows(rows)
        if self._tags is None:
            return
        chosen = self._tags.rows(rows)
        if chosen.shape != self._tags.shape:
            self._tags = chosen
            keys, values = self._stores
            self._stores = (
                {layer: x[rows] for layer, x in keys.items()},
                {layer: x[rows] for layer, x in values.items()},
            )
            return
        for mine, other in (*_fields(self._tags, chosen), (self._tags.horizon, chosen.horizon)):
            mine.copy_(other)
        for store in self._stores:
            for buffer in store.values():
                buffer.copy_(buffer[rows])

    def fork(self) -> StaticCache:
        """An independent copy."""
        twin = StaticCache(self.capacity)
        if self._tags is not None:
            every = torch.arange(self._tags.shape[0], device=self._tags.position.device)
            twin._tags, twin._end = self._tags.rows(every), self._end.clone()
        keys, values = self._stores
        twin._stores = ({i: x.clone() for i, x in keys.items()}, {i: x.clone() for i, x in values.items()})
        twin._source = self._source.fork()
        return twin

    def _reserve(self, tags: Tags) -> Tags:
        batch, device = tags.shape[0], tags.position.device
        self._end = torch.zeros((), dtype=torch.int64, device=device)
        empty = Tags.of(torch.full((batch, self.capacity), -1, device=device), horizon=tags.horizon.clone())
        return replace(empty, prefix=empty.prefix.clone(), is_global=empty.is_global.clone())

    def _check_room(self, new: int) -> None:
        rule = f"a static cache of {self.capacity} columns can't hold more than these"
        if recording():  # the number is known only where the graph runs
            torch._assert_async(self._end + new <= self.capacity, rule)
        elif int(self._end) + new > self.capacity:
            raise ContextLengthError(
                rule, value=f"{int(self._end)} and {new} new ones", remedy="Make it longer, or crop it."
            )

    def _write(self, store: dict[int, Tensor], layer: int, new: Tensor) -> Tensor:
        if layer not in store:
            batch, heads, _, width = new.shape
            # zeros, since a hidden value that is no number would still make a sum none
            store[layer] = new.new_zeros(batch, heads, self.capacity, width)
        return store[layer].index_copy_(2, self._where, new)


def _fields(held: Tags, new: Tags) -> list[tuple[Tensor, Tensor]]:
    """The tags of columns, those held beside new ones."""
    return [
        (held.position, new.position),
        (held.segment, new.segment),
        (held.prefix, new.prefix),
        (held.is_global, new.is_global),
    ]
