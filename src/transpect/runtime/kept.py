"""Programs that are kept between two uses: to bind a model's weights takes as long as it takes to write some tokens.

Axes: B sequences, S capacity.

A program is used again if the model still is what it was made of. That is looked at and not assumed: which modules
there are and what is set on them, their hooks, and where their weights lie, how often they were changed, and of small
ones, which a program may have a copy of, what is in them.
"""

from __future__ import annotations

from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from transpect.core import Transformer
from transpect.core.modules import modules_of
from transpect.runtime.memory import Layout
from transpect.runtime.program import Program

TOKENS, SOURCE = 256, 64
"""Capacities are multiples of these, so that the next sequences, which are somewhat longer, find room too."""
MOST_BYTES = 256 * 2**20
"""Of the keys and values of a program that is kept; one with more is let go."""
SMALL = 2**14
"""Numbers of a weight whose content is compared."""
_TABLES = frozenset(name for name, value in nn.Module().__dict__.items() if isinstance(value, dict))
"""Parameters, buffers, children and hooks, each a dict by name."""
_PLAIN_VALUES = (bool, int, float, str)
_PLAIN = Layout()


class State(NamedTuple):
    """Of a model.

    Attributes:
        things: the same ones mean the same model.
        values: equal ones do.
    """

    things: list[Any]
    values: list[Any]

    def is_still(self, now: State) -> bool:
        """Whether nothing has changed."""
        lengths = [len(both) for both in (*self, *now)]
        return lengths[:2] == lengths[2:] and all(map(is_, self.things, now.things)) and self.values == now.values


class _Kept(NamedTuple):
    program: Program
    state: State


_KEPT: WeakKeyDictionary[Transformer, _Kept] = WeakKeyDictionary()


class Loan:
    """A program for some sequences that have no tokens yet, the last one of its model if that will do.

    Args:
        model, sequences, capacity, sources, layout: see `Program`; there may be room for more than is asked for.

    Raises:
        ConfigError: something that a program can't do, by name.
    """

    def __init__(
        self, model: Transformer, sequences: int, capacity: int, sources: int = 0, layout: Layout = _PLAIN
    ) -> None:
        self._model, state = model, state_of(model)
        kept = _KEPT.pop(model, None)  # two at once never have the same
        wanted = sequences, capacity, sources, layout
        if kept is not None and kept.program.has_room(*wanted) and kept.state.is_still(state):
            self.program, self._state = kept
            self.program.restart(sequences)
            return
        del kept  # its memory may be needed
        rounded = -(-capacity // TOKENS) * TOKENS, -(-sources // SOURCE) * SOURCE
        self.program, self._state = Program(model, sequences, *rounded, layout), state

    def give_back(self) -> None:
        """The sequences are done with; the program is not used by the borrower any more."""
        if self.program.bytes_held <= MOST_BYTES:
            _KEPT[self._model] = _Kept(self.program, self._state)


def state_of(model: Transformer) -> State:
    """What a program of a model depends on. It does not hold the model itself."""
    things: list[Any] = []
    values: list[Any] = []
    for module in modules_of(model):
        things.append(type(model) if module is model else module)
        for name, value in module.__dict__.items():
            if name not in _TABLES:
                (values if isinstance(value, _PLAIN_VALUES) else things).append(value)
            elif value:
                things += value.values()
                if name in ("_parameters", "_buffers"):
                    values += [_content(tensor) for tensor in value.values() if tensor is not None]
    return State(things, values)


def _content(tensor: Tensor) -> tuple[Any, ...]:
    version = None if tensor.is_inference() else tensor._version
    where = tensor.data_ptr(), version, tensor.dtype, tensor.shape, tensor.stride()
    if tensor.numel() > SMALL or tensor.device.type != "cpu":
        return where
    return *where, tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
