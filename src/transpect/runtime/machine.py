"""The machine that runs a decode program: a table of calls, and threads that go through it together.

A *kernel* is a compiled function of one thread: `kernel(*arguments, rows, part, parts)` does the ``part``-th of
``parts`` equal shares of its work. `Call` binds one to its arguments once, arrays by address. To run a program each
thread goes through the table from the first call to the last; before a call that reads what other threads wrote, they
wait for each other. Nothing of Python is left between two calls, which is a third of the time of a small model.

The threads are our own: OpenMP's can't be used in a process that was forked, and torch shares them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock, Semaphore, Thread
from typing import Any

import numpy as np
from llvmlite import ir
from numba import typeof as _typeof
from numba import types

from transpect.runtime.compiling import address_of, compiled, intrinsic
from transpect.runtime.meeting import meet
from transpect.runtime.words import kind_of, packed, unpacked

Array = Any
typeof: Any = _typeof
_types: Any = types
_WORDS = _types.CPointer(types.int64)
_SIGNATURE = types.void(_WORDS, _WORDS, types.int64, types.int64)


class Kernel:
    """A compiled function `kernel(*arguments, rows, part, parts)`.

    Args:
        by_rows: its share is of the rows: part p does the rows p, p + parts, …, and reads and writes no others. Two
            such calls after each other need no waiting between them.
    """

    def __init__(self, function: Callable[..., Any], *, by_rows: bool) -> None:
        self.function, self.by_rows = compiled(function), by_rows
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._addresses: dict[Any, int] = {}

    def address(self, arguments: Any, rows: Any) -> int:
        """Of the code for arguments of these types, compiled when first asked for."""
        key = kind_of((arguments, rows))
        if key not in self._addresses:
            types = typeof(arguments), typeof(rows)
            name = f"{self.name}{types[0]}{types[1]}"
            self._addresses[key] = address_of(_wrapped(self.function, *types), _SIGNATURE, name)
        return self._addresses[key]


def kernel(*, by_rows: bool = False) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a `Kernel` of a function."""
    return lambda function: Kernel(function, by_rows=by_rows)


def _wrapped(function: Any, arguments: Any, rows: Any) -> Callable[..., None]:
    def call(line: Any, of_pass: Any, part: int, parts: int) -> None:
        function(*unpacked(line, arguments), unpacked(of_pass, rows), part, parts)

    return call


class Calls:
    """A program: calls of kernels, in their order.

    Args:
        rows: what all calls read about a pass; its arrays are filled anew for each.

    Attributes:
        names: of the kernels.
    """

    def __init__(self, rows: Any) -> None:
        self._kept: list[Any] = [rows]  # an array whose address is in a table stays in memory
        self._of_pass, self._rows = rows, _words(rows)
        self._calls: list[tuple[int, int, bool]] = []
        self.names: list[str] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, kernel: Kernel, *arguments: Any) -> None:
        """Add a call."""
        line = _words(arguments)
        self._kept += [arguments, line]
        self.names.append(kernel.function.__name__)
        self._calls.append((kernel.address(arguments, self._of_pass), line.ctypes.data, kernel.by_rows))

    def table(self, *parts: slice) -> Array:
        """Some of the calls as a table for `Team.run`: [n, 3], where the code is, where its arguments are, and whether
        a thread waits for the others before it."""
        chosen = [call for part in parts for call in self._calls[part]]
        before = [False, *(by_rows for _, _, by_rows in chosen[:-1])]
        table = [(code, line, not (own and last)) for (code, line, own), last in zip(chosen, before, strict=True)]
        return np.array(table, np.int64).reshape(-1, 3)

    @property
    def rows(self) -> Array:
        """The words of ``rows``."""
        return self._rows


def _words(value: Any) -> Array:
    return np.array(packed(value), np.int64)


class Team:
    """Threads that run a program together.

    Args:
        parts: how many, with the one that calls.
    """

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self._arrived = np.zeros(64, np.int64)  # a line of the cache of its own
        self._work: tuple[Array, Array, int] = (np.zeros((0, 3), np.int64), np.zeros(0, np.int64), 0)
        self._turns = [Semaphore(0) for _ in range(parts - 1)]
        self._one_at_a_time = Lock()
        for part in range(1, parts):
            Thread(target=self._serve, args=(part,), daemon=True, name=f"transpect-{part}").start()

    def run(self, table: Array, rows: Array) -> None:
        """Run the calls of a table; returns when all threads are done."""
        with self._one_at_a_time:
            # it only ever grows: a thread that is late to see the end of the last run would miss it otherwise
            before = int(self._arrived[0])
            self._work = table, rows, before
            for turn in self._turns:
                turn.release()
            _go_through(table, rows, self._arrived, before, 0, self.parts)

    def _serve(self, part: int) -> None:
        turn = self._turns[part - 1]
        while True:
            turn.acquire()
            table, rows, before = self._work
            _go_through(table, rows, self._arrived, before, part, self.parts)


_TEAMS: dict[int, Team] = {}


def team(parts: int) -> Team:
    """The team of so many threads of this process."""
    if parts not in _TEAMS:
        _TEAMS[parts] = Team(parts)
    return _TEAMS[parts]


os.register_at_fork(after_in_child=_TEAMS.clear)  # a child has none of its parent's threads


@compiled
def _go_through(table: Array, rows: Array, arrived: Array, before: int, part: int, parts: int) -> None:
    everyone = before
    for n in range(len(table)):
        if table[n, 2] and n:
            everyone += parts
            meet(arrived, everyone)
        _call(table[n, 0], table[n, 1], rows, part, parts)
    meet(arrived, everyone + parts)


@intrinsic
def _call(context: Any, code: Any, line: Any, rows: Any, part: Any, parts: Any) -> Any:
    """Call a kernel's code by its address."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words, word = ir.IntType(64).as_pointer(), ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [words, words, word, word])
        of_pass = context.make_array(signature.args[2])(context, builder, args[2])
        target = builder.inttoptr(args[0], function.as_pointer())
        builder.call(target, [builder.inttoptr(args[1], words), of_pass.data, args[3], args[4]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, rows, types.int64, types.int64), emit
