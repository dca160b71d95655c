"""Numbers of all columns in buffers that grow with them.

Axes: B batch, T new, S all, K key-value heads, E head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self

from torch import Tensor

from transpect.cache.columns import AllColumns


class Buffers:
    """Numbers of all columns, one tensor [B, K, S, …] a layer.

    Buffers double when they are full, so n single-token passes copy O(n) numbers in all.
    """

    def __init__(self) -> None:
        self._of_layer: dict[int, Tensor] = {}

    def append(self, layer: int, new: Tensor, start: int) -> Tensor:
        """Put ``new`` [B, K, T, …] behind the first ``start`` columns; give all of them."""
        buffer, end = self._of_layer.get(layer), start + new.shape[2]
        if buffer is None or buffer.shape[2] < end:
            batch, heads, _, *rest = new.shape
            # the first pass is often a whole prompt: leave room for a few tokens, then double
            grown = new.new_empty(batch, heads, max(end + 64, 2 * start), *rest)
            if buffer is not None:
                grown[:, :, :start] = buffer[:, :, :start]
            buffer = self._of_layer[layer] = grown
        buffer[:, :, start:end] = new
        return buffer[:, :, :end]

    def change(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replace each layer's buffer, which ``change`` must not share."""
        self._of_layer = {layer: change(buffer) for layer, buffer in self._of_layer.items()}

    def clear(self) -> None:
        """Forget everything."""
        self._of_layer = {}

    def fork(self) -> Buffers:
        """An independent copy."""
        twin = Buffers()
        twin._of_layer = {layer: buffer.clone() for layer, buffer in self._of_layer.items()}
        return twin

    def columns(self, length: int) -> dict[int, Tensor]:
        """The first ``length`` columns of each layer, as views."""
        return {layer: buffer[:, :, :length] for layer, buffer in self._of_layer.items()}

    @property
    def nbytes(self) -> int:
        """Memory in bytes, room that is not yet used included."""
        return sum(buffer.nbytes for buffer in self._of_layer.values())


class Buffered(AllColumns):
    """Keeps columns side by side in `Buffers`, padding and all. A child says in which of them what is kept of one."""

    def __init__(self, n_buffers: int) -> None:
        super().__init__()
        self._buffers = [Buffers() for _ in range(n_buffers)]

    def columns(self) -> list[dict[int, Tensor]]:
        """What each of the buffers holds of each layer, as views."""
        return [buffers.columns(self.length) for buffers in self._buffers]

    @property
    def nbytes(self) -> int:
        """Memory of the buffers in bytes."""
        return sum(buffers.nbytes for buffers in self._buffers)

    def _cut(self, length: int) -> None:
        if not length:  # otherwise they are written over
            for buffers in self._buffers:
                buffers.clear()

    def _arrange(self, order: Tensor) -> None:
        for buffers in self._buffers:
            buffers.change(partial(_gather, order=order))

    def _choose(self, rows: Tensor) -> None:
        for buffers in self._buffers:
            buffers.change(lambda buffer: buffer[rows])

    def _buffers_to(self, twin: Self) -> Self:
        """Make ``twin`` an independent copy of this."""
        twin._buffers = [buffers.fork() for buffers in self._buffers]
        return self._copy_to(twin)


def _gather(buffer: Tensor, order: Tensor) -> Tensor:
    where = order[:, None, :, None].expand(-1, buffer.shape[1], -1, buffer.shape[3])
    return buffer.gather(2, where)
