"""An encoder program: the same model as a table of calls that read texts whole, without padding, on a CPU.

Axes: B texts, T tokens of all of them, D model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.core import Transformer
from transpect.core.model import Tower
from transpect.runtime.kept import MOST_BYTES, State, state_of
from transpect.runtime.kernels import texts as kernels
from transpect.runtime.machine import Calls, team
from transpect.runtime.products.tiles import COLUMNS
from transpect.runtime.text_build import TextBuilder

Array = Any
Pool = Literal["mean", "first", "last"]
POOLS: tuple[Pool, ...] = ("mean", "first", "last")
"""By their numbers for `pool_texts`."""
TOKENS = 512
"""Of a pass: so many that reading the weights is a small part, and few enough for the caches."""


class Text(NamedTuple):
    """What is read.

    Attributes:
        ids: of its tokens; at least one.
        types: of its tokens, or none, where all are of type 0.
    """

    ids: Sequence[int]
    types: Sequence[int] = ()


Read = tuple[Sequence[int], Sequence[int]]
"""What a `Text` is."""


class EncoderProgram:
    """A model's weights, which it shares and does not copy, bound to buffers for passes over whole texts.

    It computes what the model does up to the order of sums. What a text gets does not depend on what is read beside it,
    bit for bit. Activations are float32, whatever the weights are.

    Args:
        model: an encoder on a CPU.
        longest: tokens of the longest text.

    Raises:
        ConfigError: something that a program can't do, by name.
    """

    def __init__(self, model: Transformer, longest: int) -> None:
        if model.device.type != "cpu" or model.config.kind != "encoder":
            raise ConfigError(
                "an encoder program is for a CPU and a model that is an encoder alone",
                value=f"{model.device}, {model.config.kind}",
                remedy="Read with runtime=torch.",
            )
        self.tokens = max(TOKENS, -(-longest // TOKENS) * TOKENS)
        tower: Any = next(iter(model.towers.values()))
        assert isinstance(tower, Tower)
        self._width, self._threads = model.config.d_model, torch.get_num_threads()
        self._built = TextBuilder(tower, model.token, self._width, self.tokens // COLUMNS)
        self._layers = len(self._built.calls)
        self._pools = {pool: self._out(kernels.pool_texts, number) for number, pool in enumerate(POOLS)}
        self._rows = self._out(kernels.rows_of_texts)

    def _out(self, kernel: Any, *options: int) -> tuple[Array, Array]:
        """The table of all calls and one more, and where that writes [T, D]."""
        calls, out = self._built.calls, np.zeros((self.tokens, self._width), np.float32)
        calls.add(kernel, *options, self._built.x, out)
        return calls.table(slice(0, self._layers), slice(len(calls) - 1, len(calls))), out

    @property
    def calls(self) -> Calls:
        """What it is made of, for who measures them one by one."""
        return self._built.calls

    @property
    def bytes_held(self) -> int:
        """Of buffers."""
        return self._built.bytes_held + int(self._rows[1].nbytes) * (1 + len(self._pools))

    def has_room(self, longest: int) -> bool:
        """Whether it would do for other texts, by the threads that there are now."""
        return longest <= self.tokens and self._threads == torch.get_num_threads()

    def vectors(self, texts: Sequence[Read], pool: Pool) -> Tensor:
        """What the tower's tokens are pooled to, [B, D] float32."""
        return self._read(texts, self._pools[pool], [1] * len(texts))

    def tokens_of(self, texts: Sequence[Read]) -> Tensor:
        """The vector of each token, text after text, [T, D] float32."""
        return self._read(texts, self._rows, [len(ids) for ids, _ in texts])

    def _read(self, texts: Sequence[Read], end: tuple[Array, Array], sizes: Sequence[int]) -> Tensor:
        table, out = end
        found, done = torch.empty(sum(sizes), self._width), 0
        for chosen in passes([len(ids) for ids, _ in texts], self.tokens):
            self._fill(texts[chosen])
            team(self._threads).run(table, self._built.calls.rows)
            n = sum(sizes[chosen])
            found[done : done + n] = torch.from_numpy(out[:n])
            done += n
        return found

    def _fill(self, texts: Sequence[Read]) -> None:
        """Say what the next pass reads."""
        rows, lengths = self._built.rows, [len(ids) for ids, _ in texts]
        begin = np.cumsum([0, *lengths])
        tokens = int(begin[-1])
        panels = -(-tokens // COLUMNS)
        rows.token[:tokens] = list(chain.from_iterable(ids for ids, _ in texts))
        rows.type[:tokens] = list(chain.from_iterable(types or [0] * len(ids) for ids, types in texts))
        rows.position[:tokens] = np.arange(tokens) - np.repeat(begin[:-1], lengths)
        rows.position[tokens : panels * COLUMNS] = 0
        rows.begin[: len(begin)] = begin
        edges = np.union1d(begin, np.arange(0, tokens, COLUMNS))
        spans = len(edges) - 1
        rows.first[:spans], rows.last[:spans] = edges[:-1], edges[1:]
        rows.text[:spans] = np.searchsorted(begin, edges[:-1], "right") - 1
        self._built.calls.rows[:5] = panels, tokens, len(texts), spans, max(lengths)


def passes(lengths: Sequence[int], most: int) -> Iterator[slice]:
    """Texts that follow each other, as many as one pass may read, at least one."""
    first, held = 0, 0
    for place, length in enumerate(lengths):
        if held + length > most:
            yield slice(first, place)
            first, held = place, 0
        held += length
    yield slice(first, len(lengths))


_KEPT: WeakKeyDictionary[Transformer, tuple[EncoderProgram, State]] = WeakKeyDictionary()


class EncoderLoan:
    """A program for texts of some length, the last one of its model if that will do (`transpect.runtime.kept`).

    Args:
        model, longest: see `EncoderProgram`.

    Raises:
        ConfigError: something that a program can't do, by name.
    """

    def __init__(self, model: Transformer, longest: int) -> None:
        self._model, self._state = model, state_of(model)
        kept = _KEPT.pop(model, None)  # two at once never have the same
        if kept is not None and kept[0].has_room(longest) and kept[1].is_still(self._state):
            self.program, self._state = kept
            return
        del kept  # its memory may be needed
        self.program = EncoderProgram(model, longest)

    def give_back(self) -> None:
        """The program is not used by the borrower any more."""
        if self.program.bytes_held <= MOST_BYTES:
            _KEPT[self._model] = self.program, self._state
