"""Lanes: row b of each batch goes on where row b of the batch before ended, whatever the slots and the stops."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transpect.base.errors import ConfigError, DataError
from transpect.core import (
    AttentionConfig,
    Causal,
    Full,
    ModelConfig,
    PrefixLM,
    SameSegment,
    StackConfig,
)
from transpect.core.positions import DynamicNTK, Learned, Position, Rope, TransformerXL
from transpect.core.visibility import Visibility
from transpect.data import passes
from transpect.data.batch import Batch, Stretch
from transpect.data.documents import Document, Documents, Listed
from transpect.data.draws import draws, shuffled
from transpect.data.loader import Batches
from transpect.data.objectives import Recurrent
from transpect.data.packing import Plan, alone, in_lanes
from transpect.text import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]

TEXTS = ["the cat", "a dog barks", "fish", "birds sing in the trees and fly away", "x", "天地玄黄", "no", "it is so"]
DOCUMENTS = Listed([Document(text) for text in TEXTS])


class Numbered(Documents):
    """Documents without end."""

    size = None
    segmenter = None

    def __getitem__(self, index: int) -> Document:
        return Document("abcdefg"[: 1 + index % 7] * (1 + index % 3))


def make(tokenizer: Tokenizer, documents: Documents = DOCUMENTS, **changes: object) -> Batches:
    options: dict = {"objective": Recurrent(5, 9), "batch_size": 2, "seq_len": 4, "seed": 3, "slots": 1, **changes}
    return Batches(documents, tokenizer=tokenizer, **options)


def epoch_of(batches: Batches) -> list[Batch]:
    """The batches from here to the end of the epoch."""
    found, epoch = [], batches.epoch
    while batches.epoch == epoch:
        found.append(next(batches))
    return found


def lanes_of(batches: list[Batch], slots: int = 1) -> list[list[tuple[int, int]]]:
    """(id, label) of each real token, lane after lane."""
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, batch in enumerate(batches):
        assert batch.stretch is not None and batch.stretch.slot == number % slots
        for b in range(len(batch.ids)):
            real = batch.tags.position[b] >= 0
            tokens = zip(batch.ids[b][real].tolist(), batch.labels[b][real].tolist(), strict=True)
            lanes.setdefault((batch.stretch.slot, b), []).extend(tokens)
    return [lanes[key] for key in sorted(lanes)]


# plans

LENGTHS = st.lists(st.integers(1, 30), max_size=20).map(lambda lengths: np.array(lengths, np.int64))


def stream_of(lengths: np.ndarray, seed: int) -> Plan:
    order = shuffled(len(lengths), draws(seed))
    return alone(np.stack([order, np.zeros_like(order), lengths[order]], 1))


def places(plan: Plan, row: int) -> list[tuple[int, int]]:
    return [(document, place) for document, start, n in plan[row] for place in range(start, start + n)]


@given(LENGTHS, st.integers(1, 9), st.integers(1, 16), st.integers(0, 5))
def test_lanes_are_equal_shares_of_the_stream_cut_into_segments(
    lengths: np.ndarray, count: int, capacity: int, seed: int
) -> None:
    stream = stream_of(lengths, seed)
    whole = [place for row in range(len(stream)) for place in places(stream, row)]
    plan = in_lanes(stream, count, capacity)
    assert len(plan) % count == 0
    lanes = [[places(plan, row) for row in range(lane, len(plan), count)] for lane in range(count)]
    assert [place for lane in lanes for row in lane for place in row] == whole
    sizes = [sum(map(len, lane)) for lane in lanes]
    assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
    for lane, size in zip(lanes, sizes, strict=True):
        full, rest = divmod(size, capacity)
        assert [len(row) for row in lane][: full + 1] == [*[capacity] * full, rest][: len(lane)]
        assert not any(lane[full + 1 :])
    assert len(plan) == count * -(-sizes[0] // capacity)


# batches


@pytest.mark.parametrize("seq_len", [1, 3, 4, 100])
@pytest.mark.parametrize(("batch_size", "slots"), [(1, 1), (2, 1), (2, 3), (5, 1), (100, 1)])
def test_an_epoch_s_lanes_join_to_its_documents(
    batch_size: int, slots: int, seq_len: int, letters: MakeTokenizer
) -> None:
    tokenizer = letters()
    batches = make(tokenizer, batch_size=batch_size, slots=slots, seq_len=seq_len)
    orders = []
    for _ in range(3):
        epoch = epoch_of(batches)
        assert len(epoch) % slots == 0
        assert all(batch.ids.shape == (batch_size, seq_len) for batch in epoch)
        stream = [pair for lane in lanes_of(epoch, slots) for pair in lane]
        ends = [place for place, (_, label) in enumerate(stream) if label == tokenizer.eos_id]
        texts = []
        for begin, end in zip([0, *[end + 1 for end in ends]], ends, strict=False):
            piece = stream[begin : end + 1]
            assert piece[0][0] == tokenizer.bos_id
            assert [label for _, label in piece[:-1]] == [token for token, _ in piece[1:]]
            texts.append(tokenizer.decode([label for _, label in piece[:-1]]))
        assert ends[-1] == len(stream) - 1
        assert sorted(texts) == sorted(TEXTS)
        orders.append(texts)
    assert orders[0] != orders[1] != orders[2]
    once = lanes_of(list(batches.once()), slots)
    text = tokenizer.decode([label for lane in once for _, label in lane])
    assert text == "".join(f"{text}</s>" for text in TEXTS)


def test_positions_go_on_along_a_lane_and_start_again_with_the_epoch(letters: MakeTokenizer) -> None:
    batches = make(letters())
    for _ in range(2):
        for number, batch in enumerate(epoch_of(batches)):
            position = batch.tags.position
            where = torch.arange(4 * number, 4 * number + 4).expand(2, 4)
            assert torch.equal(position, where.where(position >= 0, -1))
            assert batch.tags.start == (4 * number if bool((position >= 0).all()) else None)
            assert batch.stretch == Stretch(slot=0, first=number == 0, memory=5)
            assert not batch.tags.segment[position >= 0].any()
    assert [batch.stretch for batch in islice(batches.once(), 2)] == [Stretch(0, True, 9), Stretch(0, False, 9)]


@pytest.mark.parametrize("seq_len", [1, 4, 9])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_separate_documents_have_segments_and_positions_of_their_own(
    batch_size: int, seq_len: int, letters: MakeTokenizer
) -> None:
    """Also where a segment is exactly one document."""
    batches = make(letters(), objective=Recurrent(5, separate=True), batch_size=batch_size, seq_len=seq_len)
    found: Counter[tuple[int, int]] = Counter()
    for batch in epoch_of(batches):
        real = batch.tags.position >= 0
        found.update(zip(batch.tags.segment[real].tolist(), batch.tags.position[real].tolist(), strict=True))
    assert found == Counter((number, place) for number, text in enumerate(TEXTS) for place in range(len(text) + 1))


@pytest.mark.parametrize("documents", [DOCUMENTS, Numbered()], ids=["finite", "endless"])
def test_slots_of_an_update_read_what_one_large_batch_reads(
    documents: Documents, letters: MakeTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "BLOCK", 8)
    large = make(letters(), documents, batch_size=6)
    small = make(letters(), documents, batch_size=2, slots=3)
    for whole in islice(large, 20):
        parts = list(islice(small, 3))
        assert [part.stretch for part in parts] == [
            Stretch(slot, whole.stretch is not None and whole.stretch.first, 5) for slot in range(3)
        ]
        for name in ("ids", "labels"):
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
        assert torch.equal(torch.cat([part.tags.position for part in parts]), whole.tags.position)


def equal(a: Batch, b: Batch) -> bool:
    same = all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("ids", "labels"))
    tags = [torch.equal(getattr(a.tags, tag), getattr(b.tags, tag)) for tag in ("position", "segment", "horizon")]
    return same and all(tags) and a.tags.start == b.tags.start and a.stretch == b.stretch


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("documents", [DOCUMENTS, Numbered()], ids=["finite", "endless"])
def test_stopped_anywhere_it_goes_on_the_same(
    documents: Documents, separate: bool, letters: MakeTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "BLOCK", 8)
    options = {"objective": Recurrent(5, separate=separate), "slots": 2}
    straight = list(islice(make(letters(), documents, **options), 24))
    assert sum(batch.stretch == Stretch(0, True, 5) for batch in straight) > 1, "it must cross an epoch"
    for stop in range(24):
        first = make(letters(), documents, **options)
        for _ in range(stop):
            next(first)
        second = make(letters(), documents, **options)
        second.load_state(json.loads(json.dumps(first.state())))
        assert all(equal(a, b) for a, b in zip(straight[stop:], second, strict=False)), stop


def test_an_evaluation_leaves_training_alone(letters: MakeTokenizer) -> None:
    batches, undisturbed = make(letters()), make(letters())
    for expected in islice(undisturbed, 12):
        assert len(list(batches.once())) == batches.n_rows // 2
        assert equal(next(batches), expected)


def test_measures_count_each_place_once(letters: MakeTokenizer) -> None:
    for batch_size, slots in ((1, 1), (3, 2)):
        batches = make(letters(), batch_size=batch_size, slots=slots)
        assert batches.n_tokens == sum(len(text) + 1 for text in TEXTS)
        assert batches.n_characters == sum(map(len, TEXTS))
        assert sum(batch.n_labels for batch in batches.once()) == batches.n_tokens


def test_a_batch_moves_with_its_stretch(letters: MakeTokenizer) -> None:
    batch = next(make(letters())).to("meta")
    assert batch.stretch == Stretch(0, True, 5)
    assert batch.ids.device.type == batch.tags.position.device.type == "meta"


# refusals


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch_size": 4}, "must keep batch_size=2"),
        ({"slots": 2}, "must keep accumulate=1"),
        ({"batch_size": 1, "slots": 2}, "must keep batch_size=2"),
        ({"objective": Recurrent(6, 9)}, "must go on with the data"),
        ({"objective": Recurrent(5, 9, separate=True)}, "must go on with the data"),
        ({"seq_len": 5}, "must go on with the data"),
    ],
    ids=str,
)
def test_other_lanes_are_refused(change: dict[str, object], says: str, letters: MakeTokenizer) -> None:
    state = make(letters()).state()
    with pytest.raises((ConfigError, DataError), match=says):
        make(letters(), **change).load_state(state)


@pytest.mark.parametrize("options", [{"memory": -1}, {"memory": 0, "eval_memory": -1}, {"memory": 2**31}], ids=str)
def test_memories_that_can_not_be(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="memory must be at"):
        Recurrent(**options)


def model_of(positions: Position, rule: Visibility) -> ModelConfig:
    stack = StackConfig(n_layers=1, attention=AttentionConfig(n_heads=2), positions=positions, visibility=rule)
    return ModelConfig(vocab_size=99, d_model=8, context_length=16, decoder=stack)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (model_of(Learned(), Causal()), "positions go on from segment to segment"),
        (model_of(Rope(scaling=DynamicNTK(factor=2.0, original_length=8)), Causal()), "how long the whole will be"),
        (model_of(Rope(), Full()), "sees only the past"),
    ],
    ids=["learned", "dynamic", "full"],
)
def test_models_that_can_not_remember_are_refused(config: ModelConfig, says: str, letters: MakeTokenizer) -> None:
    with pytest.raises(ConfigError, match=says):
        Recurrent(4).check(config, letters(), 8)


def test_models_that_can_are_taken(letters: MakeTokenizer) -> None:
    for positions in (TransformerXL(), Rope()):
        for rule in (Causal(), PrefixLM()):
            Recurrent(400).check(model_of(positions, rule), letters(), 16)
    adapted = Recurrent(4, separate=True).adapt(model_of(Rope(), Causal()))
    assert adapted.last.visibility == Causal() & SameSegment()
    assert Recurrent(4).adapt(model_of(Rope(), Causal())) == model_of(Rope(), Causal())
