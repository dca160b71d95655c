"""Plans: every place of every document is in exactly one row, and rows hold no more than they can."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transpect.data import packing
from transpect.data.draws import draws, shuffled
from transpect.data.packing import Piece, Plan, alone, cut, joined, packed

LENGTHS = st.lists(st.integers(0, 30), max_size=40).map(lambda lengths: np.array(lengths, np.int64))
CAPACITY = st.integers(1, 16)


def rows_of(plan: Plan) -> list[list[Piece]]:
    return [plan[row] for row in range(len(plan))]


def places(pieces: list[Piece]) -> list[tuple[int, int]]:
    return [(document, place) for document, start, length in pieces for place in range(start, start + length)]


def all_places(lengths: np.ndarray) -> list[tuple[int, int]]:
    return [(document, place) for document, length in enumerate(lengths.tolist()) for place in range(length)]


@given(LENGTHS, CAPACITY)
def test_cutting_covers_each_place_once_in_order(lengths: np.ndarray, capacity: int) -> None:
    pieces = cut(lengths, capacity)
    assert places([tuple(piece) for piece in pieces.tolist()]) == all_places(lengths)
    assert all(0 < length <= capacity for length in pieces[:, 2])
    assert len(pieces) == sum(-(-length // capacity) for length in lengths.tolist())


@given(LENGTHS, CAPACITY)
def test_alone_is_a_row_each(lengths: np.ndarray, capacity: int) -> None:
    pieces = cut(lengths, capacity)
    assert rows_of(alone(pieces)) == [[tuple(piece)] for piece in pieces.tolist()]


def first_fit(pieces: list[Piece], capacity: int, overhead: int, limit: int) -> list[list[Piece]]:
    """The definition, in words that can be read aloud."""
    rows: list[list[Piece]] = []
    open_rows: list[int] = []

    def room(row: int) -> int:
        return capacity - sum(piece[2] + overhead for piece in rows[row])

    for piece in pieces:
        fitting = [row for row in open_rows if room(row) >= piece[2] + overhead]
        if fitting:
            rows[fitting[0]].append(piece)
        else:
            if len(open_rows) == limit:
                open_rows.remove(min(open_rows, key=room))
            open_rows.append(len(rows))
            rows.append([piece])
        open_rows = [row for row in open_rows if room(row) > 0]
    return rows


@pytest.mark.parametrize("limit", [1, 3, 64])
@given(lengths=LENGTHS, capacity=CAPACITY, overhead=st.integers(0, 2))
def test_packing_is_first_fit(limit: int, lengths: np.ndarray, capacity: int, overhead: int) -> None:
    pieces = cut(lengths, capacity)[::-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "OPEN_ROWS", limit)
        plan = packed(pieces, capacity + overhead, overhead)
    rows = rows_of(plan)
    assert rows == first_fit([tuple(piece) for piece in pieces.tolist()], capacity + overhead, overhead, limit)
    assert sorted(piece for row in rows for piece in row) == sorted(tuple(piece) for piece in pieces.tolist())
    assert all(sum(piece[2] + overhead for piece in row) <= capacity + overhead for row in rows)


@given(LENGTHS, CAPACITY, st.integers(0, 5))
def test_joined_is_one_stream_cut_into_full_rows(lengths: np.ndarray, capacity: int, seed: int) -> None:
    order = shuffled(len(lengths), draws(seed))
    rows = rows_of(joined(lengths, order, capacity))
    stream = [place for document in order for place in all_places(lengths) if place[0] == document]
    assert [places(row) for row in rows] == [stream[i : i + capacity] for i in range(0, len(stream), capacity)]
    assert all(length > 0 for row in rows for _, _, length in row)


@given(LENGTHS, CAPACITY, st.integers(0, 5))
def test_reordering_moves_whole_rows(lengths: np.ndarray, capacity: int, seed: int) -> None:
    plan = packed(cut(lengths, capacity), capacity)
    order = shuffled(len(plan), draws(seed))
    assert rows_of(plan.reordered(order)) == [plan[row] for row in order.tolist()]


def test_packing_wastes_little() -> None:
    lengths = draws("lengths").integers(8, 60, 20_000)
    plan = packed(cut(lengths, 256), 256)
    assert lengths.sum() / (len(plan) * 256) > 0.97


def test_draws_depend_on_the_whole_key_and_on_nothing_else() -> None:
    keys = [(), ("a",), ("a", 0), ("a", 0, 0), ("a", 1), (0, "a"), ("b", 0), ("a0",), ("a", 2**64), ("a", -1)]
    first = [tuple(draws(*key).random(3)) for key in keys]
    assert first == [tuple(draws(*key).random(3)) for key in keys]
    assert len(set(first)) == len(keys)


@given(st.integers(0, 50), st.integers())
def test_shuffled_is_a_permutation(n: int, seed: int) -> None:
    assert sorted(shuffled(n, draws(seed)).tolist()) == list(range(n))
