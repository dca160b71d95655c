"""Denoising: the text is predicted whole, whatever was done to what is read; each noise does what it says, as often."""

from collections import Counter
from collections.abc import Callable
from math import exp, sqrt

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.core import preset
from transpect.data.batch import Batch
from transpect.data.loader import Batches
from transpect.data.objectives import Denoising, Objective
from transpect.data.objectives.noises import (
    Noise,
    Passage,
    Rotation,
    SentencePermutation,
    TextInfilling,
    TokenDeletion,
    TokenMasking,
)
from transpect.data.sentences import sentence_starts
from transpect.data.sources import Document, Listed
from transpect.text import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
quick = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
MASK = 999
EACH = [TextInfilling(), TokenMasking(0.3), TokenDeletion(0.3), SentencePermutation(), Rotation()]


def listed(texts: list[str]) -> Listed:
    return Listed([Document(text) for text in texts])


def passage(n: int, sentences: tuple[int, ...] = (0,), room: int = 10**6) -> Passage:
    starts = np.zeros(n, np.int64)
    starts[list(sentences)] = 1
    return Passage(np.arange(n), starts, MASK, room)


def pairs(batch: Batch) -> list[tuple[list[int], list[int], list[int]]]:
    """(source, read, predicted) of each row, without padding."""
    assert batch.source_ids is not None
    assert batch.source_tags is not None
    real, known = batch.tags.position >= 0, batch.source_tags.position >= 0
    return [
        (batch.source_ids[b][known[b]].tolist(), batch.ids[b][real[b]].tolist(), batch.labels[b][real[b]].tolist())
        for b in range(len(real))
    ]


@pytest.mark.parametrize("join", [True, False])
@quick
@given(
    texts=st.lists(st.text("abcd .天。", min_size=1, max_size=40), min_size=1, max_size=5),
    noises=st.lists(st.sampled_from(EACH), min_size=1, max_size=3),
    seq_len=st.integers(3, 30),
    seed=st.integers(0, 3),
)
def test_the_whole_text_is_predicted(
    join: bool, texts: list[str], noises: list[Noise], seq_len: int, seed: int, vocabulary: Tokenizer
) -> None:
    assume(any(vocabulary.encode(text) for text in texts))
    batches = Batches(
        listed(texts), Denoising(tuple(noises), join), vocabulary, batch_size=2, seq_len=seq_len, seed=seed
    )
    documents = vocabulary.encode_batch(texts, parse_special=False)
    found: list[int] = []
    for batch in batches.once():
        for source, read, predicted in pairs(batch):
            assert read[1:] == predicted[:-1]
            assert (source[-1], predicted[-1]) == (vocabulary.eos_id, vocabulary.eos_id)
            assert len(source) <= seq_len
            # what is read comes from the text, but for masks
            assert not Counter(token for token in source[:-1] if token != vocabulary.mask_id) - Counter(predicted)
            found += predicted[:-1]
    assert found == [token for ids in documents for token in ids]


@given(
    n=st.integers(1, 60),
    rate=st.sampled_from([0.1, 0.3, 0.7]),
    mean=st.sampled_from([0.5, 3.0]),
    seed=st.integers(0, 99),
)
def test_infilling_keeps_the_rest_in_order(n: int, rate: float, mean: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spoilt = TextInfilling(rate, mean).spoil(passage(n, room=n), rng).ids.tolist()
    kept = [token for token in spoilt if token != MASK]
    assert kept == sorted(set(kept))
    assert n - len(kept) in {int(rate * n), int(rate * n) + 1}
    assert len(spoilt) <= n


def test_infilling_as_often_and_as_long_as_stated() -> None:
    n, rounds, rng = 200, 300, np.random.default_rng(5)
    hidden = masks = 0
    edges = Counter[bool]()
    for _ in range(rounds):
        spoilt = TextInfilling(0.3, 3.0).spoil(passage(n), rng).ids
        hidden += n - int((spoilt != MASK).sum())
        masks += int((spoilt == MASK).sum())
        edges[0 in spoilt] += 1
        edges[n - 1 in spoilt] += 1
    assert hidden == pytest.approx(0.3 * n * rounds)
    # the last span of a row is cut: a little more than 60 / 3 spans, zero-length ones among them
    assert 60 / 3 <= masks / rounds < 60 / 3 + 1
    # an end is hidden where the arrangement of spans and kept tokens ends with a span
    p = 20.5 / (20.5 + 0.7 * n)
    assert abs(edges[False] - p * 2 * rounds) < 4.5 * sqrt(2 * rounds * p)


def test_spans_without_length_are_masks_between_tokens() -> None:
    rng = np.random.default_rng(0)
    between = total = 0
    for _ in range(200):
        spoilt = TextInfilling(0.3, 1.0).spoil(passage(100), rng).ids.tolist()
        places = [i for i, token in enumerate(spoilt) if token == MASK]
        total += len(places)
        between += sum(
            spoilt[i + 1] == spoilt[i - 1] + 1
            for i in places
            if 0 < i < len(spoilt) - 1 and MASK not in (spoilt[i - 1], spoilt[i + 1])
        )
    # e⁻¹ of the spans have no length, and of 70 kept tokens and 30 spans a neighbour is kept with chance 0.7
    assert between / total == pytest.approx(0.7**2 * exp(-1), rel=0.1)


def test_masking_and_deletion_as_often_as_stated() -> None:
    rng, n = np.random.default_rng(2), 20_000
    masked = TokenMasking(0.2).spoil(passage(n), rng).ids
    assert abs(int((masked == MASK).sum()) - 0.2 * n) < 4.5 * sqrt(n * 0.16)
    assert (masked[masked != MASK] == np.flatnonzero(masked != MASK)).all()
    left = TokenDeletion(0.2).spoil(passage(n), rng).ids
    assert abs(len(left) - 0.8 * n) < 4.5 * sqrt(n * 0.16)
    assert (np.diff(left) > 0).all()


@pytest.mark.parametrize("first", [0, 2])
def test_sentences_are_permuted_whole_and_every_order_is_as_likely(first: int) -> None:
    rng = np.random.default_rng(3)
    orders = Counter[tuple[int, ...]]()
    for _ in range(1200):
        spoilt = SentencePermutation().spoil(passage(9, (first, 4, 5)), rng).ids.tolist()
        sentences = {0: [0, 1, 2, 3], 4: [4], 5: [5, 6, 7, 8]}
        if first:
            sentences = {0: [0, 1], 2: [2, 3], **{k: sentences[k] for k in (4, 5)}}
        order = tuple(token for token in spoilt if token in sentences)
        assert spoilt == [token for start in order for token in sentences[start]]
        orders[order] += 1
    kinds = 6 if first == 0 else 24
    assert len(orders) == kinds
    assert all(abs(count - 1200 / kinds) < 4.5 * sqrt(1200 / kinds) for count in orders.values())


def test_rotation() -> None:
    rng = np.random.default_rng(4)
    firsts = Counter[int]()
    for _ in range(1000):
        spoilt = Rotation().spoil(passage(5), rng).ids.tolist()
        firsts[spoilt[0]] += 1
        assert spoilt == [(spoilt[0] + i) % 5 for i in range(5)]
    assert all(abs(firsts[i] - 200) < 4.5 * sqrt(160) for i in range(5))
    still = sum(Rotation(0.5).spoil(passage(5), rng).ids[0] == 0 for _ in range(1000))
    assert abs(still - 600) < 4.5 * sqrt(240)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("no mark", ["no mark"]),
        ("One. Two!  Three? 3.5 is a.b", ["One. ", "Two!  ", "Three? ", "3.5 is a.b"]),
        ("天地。玄黄！”宇宙？洪荒", ["天地。", "玄黄！”", "宇宙？", "洪荒"]),
        ("a\nb\n\nc.", ["a\n", "b\n\n", "c."]),
        ('He said "no." Then.', ['He said "no." ', "Then."]),
        ("……好。", ["……", "好。"]),
    ],
)
def test_where_sentences_begin(text: str, sentences: list[str]) -> None:
    assert sentence_starts("") == []
    starts = sentence_starts(text)
    assert [text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)] == sentences


def test_what_it_needs(letters: MakeTokenizer) -> None:
    Denoising().check(preset("bart-base"), letters(mask="<mask>"), 16)
    with pytest.raises(ConfigError, match="special token mask"):
        Denoising().check(preset("bart-base"), letters(), 16)
    with pytest.raises(ConfigError, match="at least one noise"):
        from_data(Objective, {"kind": "denoising", "noises": []})
    for options in ({"kind": "text_infilling", "rate": 1}, {"kind": "rotation", "rate": 0}, {"kind": "hiss"}):
        with pytest.raises(ConfigError):
            from_data(Objective, {"kind": "denoising", "noises": [options]})
    for objective in (Denoising(), Denoising((Rotation(), TextInfilling(0.1, 1.0)), True)):
        assert from_data(Objective, to_data(objective)) == objective
    bare = {"kind": "denoising", "noises": ["sentence_permutation", {"kind": "text_infilling", "rate": 0.2}]}
    assert from_data(Objective, bare) == Denoising((SentencePermutation(), TextInfilling(0.2)))
