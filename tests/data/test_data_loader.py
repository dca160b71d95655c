"""Batches: without end, in an order of their own each epoch, and the same wherever they were stopped."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from itertools import islice

import pytest
import torch

from transpect.base.errors import ConfigError, DataError
from transpect.core import Tags
from transpect.data import loader, passes
from transpect.data.batch import IGNORE, Batch
from transpect.data.loader import Batches
from transpect.data.objectives import Causal, Denoising, Masked, Objective, Prefix, Seq2Seq, Span
from transpect.data.sources import Document, Documents, Listed, Source, Stories
from transpect.text import Tokenizer, train_tokenizer

MakeTokenizer = Callable[..., Tokenizer]
Make = Callable[..., Batches]

TEXTS = [
    "the cat",
    "a dog barks",
    "fish",
    "birds sing in the trees and fly away",
    "x",
    "天地玄黄",
    "no",
    "yes",
    "it is so",
]
PAIRS = Listed([Document(text, text[::-1]) for text in TEXTS])
SINGLES = Listed([Document(text) for text in TEXTS])


class Numbered(Documents):
    """Documents without end that any test can afford."""

    size = None
    segmenter = None

    def __getitem__(self, index: int) -> Document:
        return Document("abcdefg"[: 1 + index % 7] * (1 + index % 3))


class Sparse(Numbered):
    """Documents without end; those below ``first`` give a pair no room."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __getitem__(self, index: int) -> Document:
        text = "abc" if index >= self.first else "abc" * 20
        return Document(text, text)


KINDS: dict[str, tuple[Documents, Objective]] = {
    "causal": (PAIRS, Causal()),
    "joined": (PAIRS, Causal(separate=False)),
    "padded": (PAIRS, Causal(pack=False)),
    "masked": (PAIRS, Masked()),
    "masked, packed": (PAIRS, Masked(pack=True)),
    "seq2seq": (PAIRS, Seq2Seq(too_long="crop")),
    "masked, n-grams": (PAIRS, Masked(ngrams=(0.4, 0.3, 0.2, 0.1), together=True)),
    "prefix": (SINGLES, Prefix(pack=False)),
    "prefix, packed": (SINGLES, Prefix()),
    "span": (PAIRS, Span()),
    "span, alone": (PAIRS, Span(join=False)),
    "denoising": (PAIRS, Denoising()),
    "endless": (Numbered(), Causal()),
    "endless, masked": (Numbered(), Masked()),
}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, letters: MakeTokenizer, monkeypatch: pytest.MonkeyPatch) -> Make:
    """``make(batch_size=3, seed=5)``: new batches of one kind, endless ones with epochs of 8 documents."""
    monkeypatch.setattr(passes, "BLOCK", 8)
    documents, objective = KINDS[request.param]

    def batches(batch_size: int = 3, seed: int = 5, seq_len: int = 16) -> Batches:
        tokenizer = letters(mask="<mask>")
        return Batches(documents, objective, tokenizer, batch_size=batch_size, seq_len=seq_len, seed=seed)

    return batches


def equal(a: Batch, b: Batch) -> bool:
    """Bit for bit."""
    for field in fields(Batch):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, Tags):
            same = all(torch.equal(getattr(one, tag), getattr(other, tag)) for tag in ("position", "segment", "prefix"))
            same &= one.start == other.start and torch.equal(one.horizon, other.horizon)
        elif one is None:
            same = other is None
        else:
            same = torch.equal(one, other)
        if not same:
            return False
    return True


def rows(batch: Batch) -> list[tuple[tuple[int, ...], ...]]:
    """Each row without its padding."""
    real = batch.tags.position >= 0
    return [
        tuple(tuple(each[b][real[b]].tolist()) for each in (batch.ids, batch.labels, batch.tags.segment))
        for b in range(len(batch.ids))
    ]


@pytest.mark.parametrize("batch_size", [1, 3, 20])
def test_stopped_anywhere_it_goes_on_the_same(make: Make, batch_size: int) -> None:
    n = 2 + 24 // batch_size  # into the third epoch and beyond
    straight = list(islice(make(batch_size), n))
    for stop in range(n):
        first = make(batch_size)
        for _ in range(stop):
            next(first)
        state = json.loads(json.dumps(first.state()))
        second = make(batch_size)
        second.load_state(state)
        assert second.state() == state
        assert second.epoch == first.epoch
        assert all(equal(a, b) for a, b in zip(straight[stop:], islice(second, n - stop), strict=True)), stop


def test_stopped_at_every_batch_it_goes_on_the_same(make: Make) -> None:
    straight, state = make(), make().state()
    for expected in islice(straight, 12):
        batches = make()
        batches.load_state(state)
        assert equal(next(batches), expected)
        state = batches.state()


def test_a_state_can_be_taken_back_and_taken_twice(make: Make) -> None:
    batches = make()
    next(batches)
    state = batches.state()
    assert batches.state() == state
    expected = list(islice(batches, 8))
    batches.load_state(state)
    assert all(equal(a, b) for a, b in zip(islice(batches, 8), expected, strict=True))


def test_rows_do_not_depend_on_the_batch_size(make: Make) -> None:
    by_one, by_five = make(1), make(5)
    ones = [row for batch in islice(by_one, 30) for row in rows(batch)]
    assert [row for batch in islice(by_five, 6) for row in rows(batch)] == ones
    assert by_one.state() == by_five.state()
    larger = make(2)
    larger.load_state(by_one.state())
    assert rows(next(larger)) == [row for batch in islice(by_five, 1) for row in rows(batch)][:2]


def epochs(batches: Batches, count: int) -> list[list[tuple[tuple[int, ...], ...]]]:
    """The rows of the first epochs; ``batches`` has batches of one row."""
    found: list[list[tuple[tuple[int, ...], ...]]] = []
    while len(found) < count:
        here: list[tuple[tuple[int, ...], ...]] = []
        start = batches.epoch
        while batches.epoch == start:
            here += rows(next(batches))
        found.append(here)
    return found


@pytest.mark.parametrize("kind", ["causal", "joined", "padded", "seq2seq"])
def test_each_token_is_predicted_once_an_epoch_in_another_order(kind: str, letters: MakeTokenizer) -> None:
    documents, objective = KINDS[kind]
    batches = Batches(documents, objective, letters(), batch_size=1, seq_len=16)
    first, second, third = epochs(batches, 3)
    labels = [Counter(label for row in epoch for label in row[1]) for epoch in (first, second, third)]
    assert labels[0] == labels[1] == labels[2]
    assert labels[0] == Counter(
        label for batch in batches.once() for label in batch.labels.flatten().tolist() if label != IGNORE
    )
    assert first != second != third


def test_a_block_of_an_endless_row_is_an_epoch(letters: MakeTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "BLOCK", 8)
    tokenizer = letters()
    batches = Batches(Numbered(), Causal(pack=False), tokenizer, batch_size=1, seq_len=32)
    for number, epoch in enumerate(epochs(batches, 3)):
        found = [tokenizer.decode(row[0]).removeprefix("<s>") for row in epoch]
        assert sorted(found) == sorted(Numbered()[i].text for i in range(8 * number, 8 * number + 8))


@pytest.mark.parametrize("barren", [0, 1, 3, loader.BARREN - 1])
def test_blocks_without_rows_are_passed_over(
    barren: int, letters: MakeTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "BLOCK", 4)

    def make() -> Batches:
        return Batches(Sparse(barren * 4), Seq2Seq("drop"), letters(), batch_size=4, seq_len=8)

    batches = make()
    start = batches.state()
    first = next(batches)
    assert batches.epoch == barren + 1
    second = next(batches)
    again = make()
    again.load_state(start)
    assert equal(next(again), first)
    assert equal(next(again), second)


def test_nothing_but_blocks_without_rows_is_refused(letters: MakeTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "BLOCK", 4)
    batches = Batches(Sparse(10**9), Seq2Seq("drop"), letters(), batch_size=4, seq_len=8)
    with pytest.raises(DataError, match=rf"something to predict .*passes 0 to {loader.BARREN - 1}.*seq_len"):
        next(batches)


def test_seeds_give_orders_of_their_own(make: Make) -> None:
    one, again, other = ([rows(batch) for batch in islice(make(seed=seed), 4)] for seed in (1, 1, 2))
    assert one == again != other


def test_documents_are_well_mixed(letters: MakeTokenizer) -> None:
    """Each document is as often first as any other, over epochs."""
    texts = [chr(ord("a") + i) for i in range(10)]
    tokenizer = letters()
    documents = Listed([Document(text) for text in texts])
    batches = Batches(documents, Causal(pack=False), tokenizer, batch_size=1, seq_len=4)
    firsts = Counter(epoch[0][0] for epoch in epochs(batches, 300))
    assert len(firsts) == 10
    assert all(abs(count - 30) < 4.5 * (30 * 0.9) ** 0.5 for count in firsts.values())


def test_an_evaluation_is_one_pass_in_order_and_leaves_training_alone(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    batches, undisturbed = (
        Batches(PAIRS, Causal(pack=False), tokenizer, batch_size=4, seq_len=64, seed=3) for _ in range(2)
    )
    for expected in islice(undisturbed, 5):
        once = list(batches.once())
        assert [len(batch.ids) for batch in once] == [4, 4, 1]
        read = [tokenizer.decode(row[0]).removeprefix("<s>") for batch in once for row in rows(batch)]
        assert read == TEXTS
        assert equal(next(batches), expected)


def test_measures(letters: MakeTokenizer) -> None:
    batches = Batches(PAIRS, Causal(pack=False), letters(), batch_size=4, seq_len=64)
    assert (batches.n_documents, batches.n_rows) == (9, 9)
    assert batches.n_tokens == sum(len(text) + 1 for text in TEXTS)
    assert batches.n_characters == sum(map(len, TEXTS))


# refusals


@pytest.mark.parametrize(
    "change",
    [
        {"documents": Listed([Document(text) for text in [*TEXTS[:-1], "it is sO"]])},
        {"documents": Listed([Document(text) for text in TEXTS[::-1]])},
        {"documents": Listed([Document(text) for text in ["the cata", " dog barks", *TEXTS[2:]]])},
        {"objective": Causal(pack=False)},
        {"seq_len": 15},
        {"seed": 1},
        {"documents": Stories(stories=9).documents()},
        {"documents": Numbered()},
    ],
    ids=["a letter", "order", "a border", "objective", "length", "seed", "other documents", "without end"],
)
def test_another_run_s_place_is_refused(change: dict[str, object], letters: MakeTokenizer) -> None:
    options = {"documents": PAIRS, "objective": Causal(), "seq_len": 16, "seed": 0}
    state = Batches(tokenizer=letters(), batch_size=2, **options).state()  # type: ignore[arg-type]
    other = Batches(tokenizer=letters(), batch_size=2, **{**options, **change})  # type: ignore[arg-type]
    with pytest.raises(DataError, match="must go on with the data, tokenizer, objective, seq_len and seed"):
        other.load_state(state)


def test_borders_of_documents_count(letters: MakeTokenizer) -> None:
    """Where no token stands between documents, the same letters in other documents are other data."""
    a, b = (
        Batches(Listed([Document(text) for text in texts]), Masked(), letters(mask="<mask>"), batch_size=1, seq_len=8)
        for texts in (["天地", "玄黄"], ["天", "地玄黄"])
    )
    with pytest.raises(DataError, match="must go on with"):
        b.load_state(a.state())


@pytest.mark.parametrize("other", [Stories(seed=1), Stories(start=1), Stories("en"), Stories(stories=30)])
def test_another_stream_of_stories_is_refused(other: Source) -> None:
    tokenizer = train_tokenizer("char", [*Stories("zh").texts(200), *Stories("en").texts(200)])
    state = Batches(Stories().documents(), Causal(), tokenizer, batch_size=2, seq_len=16).state()
    with pytest.raises(DataError, match="must go on with"):
        Batches(other.documents(), Causal(), tokenizer, batch_size=2, seq_len=16).load_state(state)


@pytest.mark.parametrize("state", [{}, {"epoch": 0, "row": 0}])
def test_what_is_no_state_is_refused(state: dict[str, object], letters: MakeTokenizer) -> None:
    with pytest.raises(DataError):
        Batches(PAIRS, Causal(), letters(), batch_size=2, seq_len=16).load_state(state)


def test_documents_without_end_have_no_whole_pass(letters: MakeTokenizer) -> None:
    batches = Batches(Numbered(), Causal(), letters(), batch_size=2, seq_len=16)
    assert batches.n_documents is None
    for use in (
        lambda: next(batches.once()),
        lambda: batches.n_rows,
        lambda: batches.n_tokens,
        lambda: batches.n_characters,
    ):
        with pytest.raises(ConfigError, match="without end"):
            use()


@pytest.mark.parametrize(("size", "value"), [("batch_size", 0), ("batch_size", -1), ("seq_len", 0)])
def test_sizes_that_can_not_be(size: str, value: int, letters: MakeTokenizer) -> None:
    options = {"batch_size": 2, "seq_len": 8, size: value}
    with pytest.raises(ConfigError, match=f"{size} must be at least 1"):
        Batches(PAIRS, Causal(), letters(), **options)


def test_no_documents_are_refused(letters: MakeTokenizer) -> None:
    with pytest.raises(DataError, match="at least one document"):
        Batches(Listed([]), Causal(), letters(), batch_size=1, seq_len=8)


# batches


def test_a_batch_moves_whole(make: Make) -> None:
    batch = next(make())
    assert equal(batch, batch.to("cpu"))
    meta = batch.to("meta")
    for field in fields(Batch):
        value = getattr(meta, field.name)
        tensors = (
            [getattr(value, tag) for tag in ("position", "segment", "prefix", "horizon")]
            if isinstance(value, Tags)
            else [value]
        )
        assert all(tensor is None or tensor.device.type == "meta" for tensor in tensors)
    assert batch.n_labels == int((batch.labels != IGNORE).sum())
    read = int((batch.tags.position >= 0).sum())
    read += 0 if batch.source_tags is None else int((batch.source_tags.position >= 0).sum())
    assert batch.n_tokens == read
