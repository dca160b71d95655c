"""The machine: values come through words as they were, and threads see what others wrote before."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from transpect.runtime.machine import Calls, kernel, team

Array = Any

MORE = pytest.param(5, marks=pytest.mark.slow)
"""Threads than most machines of a test have cores: they wait for each other by the system's clock."""


class Pair(NamedTuple):
    numbers: Array
    factor: Any


class Rows(NamedTuple):
    n: int
    which: Array


@kernel()
def everything(
    flag: bool,
    whole: int,
    half: Any,
    wide: float,
    pair: Pair,
    nested: Any,
    cube: Array,
    out: Array,
    rows: Rows,
    part: int,
    parts: int,
) -> None:
    if part == 0:
        out[0], out[1], out[2], out[3] = flag, whole, half, wide
        out[4] = pair.numbers[1, 2] * pair.factor
        out[5] = nested[0] + nested[1][0][1]
        out[6] = cube[1, 2, 3] + cube.shape[0] + 10 * cube.shape[1] + 100 * cube.shape[2]
        out[7], out[8] = rows.n, rows.which[rows.n]
        out[9] = len(pair.numbers)


@kernel()
def mirrored(x: Array, out: Array, rows: Rows, part: int, parts: int) -> None:
    """out ← 1 + x from its end: each part reads what another one has written."""
    n = len(x)
    for i in range(part * n // parts, (part + 1) * n // parts):
        out[i] = x[n - 1 - i] + 1


@kernel(by_rows=True)
def doubled(x: Array, rows: Rows, part: int, parts: int) -> None:
    for r in range(part, rows.n, parts):
        x[r] *= 2


def test_values_come_through() -> None:
    calls, out = Calls(Rows(2, np.array([5, 6, 7]))), np.zeros(10)
    cube = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    numbers = np.arange(6, dtype=np.uint16).reshape(2, 3)
    pair, nested = Pair(numbers, np.float32(0.5)), (3, (np.array([1.0, 2.0]),))
    calls.add(everything, True, -(2**40), np.float32(1.25), -1e300, pair, nested, cube, out)
    team(1).run(calls.table(slice(None)), calls.rows)
    assert out.tolist() == [1, -(2**40), 1.25, -1e300, 2.5, 5, 23 + 2 + 30 + 400, 2, 7, 2]


@pytest.mark.parametrize("threads", [1, 2, MORE])
def test_a_call_sees_what_all_threads_wrote_before(threads: int) -> None:
    """With more threads than cores too."""
    x, other = np.zeros(64, np.int64), np.zeros(64, np.int64)
    calls = Calls(Rows(64, np.zeros(1, np.int64)))
    for _ in range(50):
        calls.add(mirrored, x, other)
        calls.add(mirrored, other, x)
    for run in range(1, 20):
        team(threads).run(calls.table(slice(None)), calls.rows)
        assert (x == 100 * run).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_calls_by_rows_mix_with_others(threads: int) -> None:
    x, other = np.arange(7), np.zeros(7, np.int64)
    calls = Calls(Rows(7, np.zeros(1, np.int64)))
    expected = np.arange(7)
    for _ in range(20):
        calls.add(doubled, x)
        calls.add(doubled, x)
        calls.add(mirrored, x, other)
        calls.add(mirrored, other, x)
        expected = 4 * expected + 2
    team(threads).run(calls.table(slice(None)), calls.rows)
    assert (x == expected).all()


def test_waits_are_where_threads_read_each_other() -> None:
    x, other = np.zeros(4, np.int64), np.zeros(4, np.int64)
    calls = Calls(Rows(4, np.zeros(1, np.int64)))
    for each in ("doubled", "doubled", "mirrored", "mirrored", "doubled"):
        calls.add(*((doubled, x) if each == "doubled" else (mirrored, x, other)))
    assert calls.table(slice(1, None))[:, 2].tolist() == [1, 1, 1, 1]
    assert calls.table(slice(None))[:, 2].tolist() == [1, 0, 1, 1, 1]


def test_parts_of_a_program() -> None:
    x = np.ones(4, np.int64)
    calls = Calls(Rows(4, np.zeros(1, np.int64)))
    for _ in range(5):
        calls.add(doubled, x)
    team(2).run(calls.table(slice(2), slice(4, None)), calls.rows)
    assert (x == 8).all() and len(calls) == 5


@pytest.mark.parametrize("threads", [2, MORE])
def test_many_short_runs(threads: int) -> None:
    """A thread that is late to see the end of one run must not miss it for the beginning of the next."""
    x, other = np.zeros(8, np.int64), np.zeros(8, np.int64)
    calls = Calls(Rows(8, np.zeros(1, np.int64)))
    calls.add(mirrored, x, other)
    calls.add(mirrored, other, x)
    for _ in range(2000):
        team(threads).run(calls.table(slice(None)), calls.rows)
    assert (x == 4000).all()
