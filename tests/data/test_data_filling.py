"""Best fit, buckets and batches made ahead: every place once, rows no fuller than they may be, the same bits."""

import threading
from collections.abc import Callable
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.base.errors import ConfigError, DataError
from transpect.data.batch import Batch
from transpect.data.best_fit import best_fit, filled
from transpect.data.buckets import in_buckets
from transpect.data.documents import Document, Listed
from transpect.data.draws import draws, shuffled
from transpect.data.loader import Batches
from transpect.data.objectives import Causal, Masked, Objective, Seq2Seq
from transpect.data.packing import Plan, cut, packed
from transpect.data.prefetch import Prefetched
from transpect.text import Tokenizer, train_tokenizer

MakeTokenizer = Callable[..., Tokenizer]
LENGTHS = st.lists(st.integers(0, 40), max_size=60).map(lambda lengths: np.array(lengths, np.int64))


def placed(plan: Plan) -> list[list[tuple[int, int, int]]]:
    return [plan[row] for row in range(len(plan))]


@settings(max_examples=60)
@given(LENGTHS, st.integers(4, 24), st.integers(0, 2), st.sampled_from([1, 5, 4096]))
def test_best_fit_places_every_piece_once_in_no_more_rows_than_first_fit(
    lengths: np.ndarray, capacity: int, overhead: int, window: int
) -> None:
    pieces = cut(lengths, capacity - overhead)
    plan = best_fit(pieces, capacity, overhead, window)
    rows = placed(plan)
    assert sorted(piece for row in rows for piece in row) == sorted(map(tuple, pieces.tolist()))
    assert all(sum(length + overhead for _, _, length in row) <= capacity for row in rows)
    assert len(plan) <= len(packed(pieces, capacity, overhead))
    # only what is longer than a row is cut
    whole = {document for document, length in enumerate(lengths.tolist()) if 0 < length <= capacity - overhead}
    assert all(start == 0 and length == lengths[d] for row in rows for d, start, length in row if d in whole)
    places = {piece: at for at, piece in enumerate(map(tuple, pieces.tolist()))}
    assert all(sorted(row, key=places.__getitem__) == row for row in rows)
    assert [places[row[0]] for row in rows] == sorted(places[row[0]] for row in rows)


def test_best_fit_is_the_definition_where_one_window_holds_all() -> None:
    rng = draws("lengths")
    for _ in range(60):
        lengths = rng.integers(1, 20, 40)
        rooms: list[int] = []
        for need in sorted(lengths.tolist(), reverse=True):
            fitting = [i for i, room in enumerate(rooms) if room >= need]
            if not fitting:
                rooms.append(20)
                fitting = [len(rooms) - 1]
            rooms[min(fitting, key=lambda i: (rooms[i], i))] -= need
        pieces = cut(lengths, 20)
        assert len(best_fit(pieces, 20)) == min(len(rooms), len(packed(pieces, 20)))


def test_rows_of_best_fit_come_in_a_random_order_of_their_own() -> None:
    pieces = cut(draws("lengths").integers(1, 50, 500), 64)
    one, again, other = (filled(pieces, 64, 0, "best", draws(seed)) for seed in (1, 1, 2))
    assert placed(one) == placed(again) != placed(other)
    assert sorted(placed(one)) == sorted(placed(filled(pieces, 64, 0, "best", None)))
    fill = pieces[:, 2].sum() / 64
    assert fill / len(one) > 0.97 > fill / len(packed(pieces, 64)) - 0.05


@given(LENGTHS, st.integers(1, 12), st.integers(0, 99))
def test_buckets_hold_items_of_about_one_length(lengths: np.ndarray, size: int, seed: int) -> None:
    order = shuffled(len(lengths), draws(seed))
    found = in_buckets(order, lengths[order], size, draws(seed, "runs"))
    assert sorted(found.tolist()) == list(range(len(lengths)))
    if size == 1:
        assert found.tolist() == order.tolist()
        return
    runs = [lengths[found[at : at + size]] for at in range(0, len(found), size)]
    spans = sorted((int(run.min()), int(run.max())) for run in runs)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


TEXTS = ["ab" * (1 + 7 * i % 13) for i in range(40)]
PAIRS = Listed([Document(text, text[::-1]) for text in TEXTS])
TOKENIZER = train_tokenizer("char", ["ab"], special_tokens={"mask": "<m>"})
OBJECTIVES: dict[str, Objective] = {"causal": Causal(pack=False), "masked": Masked(), "seq2seq": Seq2Seq()}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_that_pads_can_have_buckets(name: str, letters: MakeTokenizer) -> None:
    def padding(bucket: int) -> tuple[int, list[int]]:
        batches = Batches(PAIRS, OBJECTIVES[name], letters(mask="<m>"), batch_size=4, seq_len=32, bucket=bucket)
        epoch = list(islice(batches, 10))
        lengths = sorted(int(n) for batch in epoch for n in (batch.tags.position >= 0).sum(1))
        return sum(int((batch.tags.position < 0).sum()) for batch in epoch), lengths

    (much, all_of_them), (little, the_same) = padding(1), padding(8)
    assert all_of_them == the_same and little < much / 2


def test_what_means_nothing_is_refused(letters: MakeTokenizer) -> None:
    for make in (
        lambda: Causal(pack=False, fit="best"),
        lambda: Causal(separate=False, fit="best"),
        lambda: Masked(fit="best"),
        lambda: Batches(PAIRS, Causal(), letters(), batch_size=2, seq_len=32, bucket=4),
        lambda: Batches(PAIRS, Causal(pack=False), letters(), batch_size=2, seq_len=32, bucket=0),
    ):
        with pytest.raises(ConfigError):
            make()


# made ahead


@settings(max_examples=12)
@given(st.integers(1, 3), st.integers(0, 12), st.sampled_from(["causal", "masked", "packed"]))
def test_batches_made_ahead_are_the_same_and_know_their_place(workers: int, stop: int, kind: str) -> None:
    tokenizer, before = TOKENIZER, set(threading.enumerate())
    objective = {"packed": Causal(fit="best"), **OBJECTIVES}[kind]

    def make() -> Batches:
        return Batches(PAIRS, objective, tokenizer, batch_size=3, seq_len=32, seed=7)

    straight, ahead = make(), Prefetched(make(), workers)
    for _ in range(stop):
        one, other = next(straight), next(ahead)
        assert torch.equal(one.ids, other.ids) and torch.equal(one.labels, other.labels)
        assert (straight.state(), straight.epoch) == (ahead.state(), ahead.epoch)
    again = Prefetched(make(), workers)
    next(again)
    again.load_state(ahead.state())
    assert torch.equal(next(again).ids, next(straight).ids)
    for one in (ahead, again):
        one.close()
    assert torch.equal(next(ahead).ids, make_at(make(), stop).ids)  # a closed one goes on where it was
    ahead.close()
    assert not set(threading.enumerate()) - before


def make_at(batches: Batches, number: int) -> Batch:
    return next(islice(batches, number, None))


def test_an_error_comes_at_its_turn(letters: MakeTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(PAIRS, Causal(), letters(), batch_size=2, seq_len=32)
    made = batches.made
    turns = iter(range(99))

    def breaks(taken: object) -> object:
        if next(turns) == 2:
            raise DataError("broken")
        return made(taken)  # type: ignore[arg-type]

    monkeypatch.setattr(batches, "made", breaks)
    ahead = Prefetched(batches, 1)
    next(ahead)
    next(ahead)
    with pytest.raises(DataError, match="broken"):
        next(ahead)
    ahead.close()
