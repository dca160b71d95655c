"""Span corruption: what is left out is predicted, at the rate, in spans of the mean, in rows that fill their length."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.core import preset
from transpect.data.batch import IGNORE, Batch
from transpect.data.loader import Batches
from transpect.data.objectives import Objective, Span
from transpect.data.objectives.span import sentinels
from transpect.data.sources import Document, Listed
from transpect.text import Tokenizer, train_tokenizer

MakeTokenizer = Callable[..., Tokenizer]
quick = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.lists(st.text("abcde 天地.", min_size=1, max_size=60), min_size=1, max_size=6)


def listed(texts: list[str]) -> Listed:
    return Listed([Document(text) for text in texts])


def pairs(batch: Batch) -> list[tuple[list[int], list[int], list[int]]]:
    """(source, read, predicted) of each row, without padding."""
    assert batch.source_ids is not None
    assert batch.source_tags is not None
    real, known = batch.tags.position >= 0, batch.source_tags.position >= 0
    return [
        (batch.source_ids[b][known[b]].tolist(), batch.ids[b][real[b]].tolist(), batch.labels[b][real[b]].tolist())
        for b in range(len(real))
    ]


def restored(source: list[int], target: list[int], marks: list[int]) -> tuple[list[int], list[int]]:
    """The text of a row, and how long its spans are; the stretches of a target go where their sentinels stand."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in marks:
            assert token == marks[len(spans)]  # numbered from 0 on
            spans[token] = []
        else:
            spans[marks[len(spans) - 1]].append(token)
    assert [token for token in source if token in marks] == list(spans)
    text = [token for each in source for token in spans.get(each, [each])]
    return text, [len(span) for span in spans.values()]


@pytest.mark.parametrize("join", [True, False])
@quick
@given(
    texts=TEXTS,
    seq_len=st.integers(8, 40),
    rate=st.sampled_from([0.15, 0.4]),
    mean=st.sampled_from([1.0, 3.0, 5.0]),
    seed=st.integers(0, 3),
)
def test_source_and_target_make_the_text(
    join: bool, texts: list[str], seq_len: int, rate: float, mean: float, seed: int, vocabulary: Tokenizer
) -> None:
    objective = Span(rate, mean, join)
    if sum(objective.counts(objective.body(seq_len, 1))) >= seq_len:
        return  # short spans at a high rate: refused, see below
    assume(any(vocabulary.encode(text) for text in texts))
    batches = Batches(listed(texts), objective, vocabulary, batch_size=3, seq_len=seq_len, seed=seed)
    marks, eos = sentinels(vocabulary).tolist(), vocabulary.eos_id
    found: list[list[int]] = []
    rows = [row for batch in batches.once() for row in pairs(batch)]
    for number, (source, read, predicted) in enumerate(rows):
        assert read[1:] == predicted[:-1]
        assert (source[-1], predicted[-1]) == (eos, eos)
        assert len(source) <= seq_len
        assert len(predicted) <= seq_len
        text, spans = restored(source[:-1], predicted[:-1], marks)
        assert objective.counts(len(text)) == (sum(spans), len(spans))
        assert min(spans) >= 1
        if join and number < len(rows) - 1:
            # one more token, and the source would not fit
            noise, count = objective.counts(len(text) + 1)
            assert len(text) + 1 - noise + count + 1 > seq_len
        found.append(text)
    documents = vocabulary.encode_batch(texts, parse_special=False)
    expected = [token for ids in documents for token in ids]
    assert [token for text in found for token in text] == expected


@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.5, 3.0), (0.3, 8.0)])
def test_rate_mean_and_lengths(rate: float, mean: float, letters: MakeTokenizer) -> None:
    """Rows of about the length of T5's own, in the numbers of its paper."""
    tokenizer = letters()
    n_rows, seq_len = 200, 126
    objective = Span(rate, mean)
    tokenizer = train_tokenizer("char", ["abcdefgh"], extra_special_tokens=objective.special_tokens(seq_len))
    body = objective.body(seq_len, 1)
    batches = Batches(
        listed(["abcdefgh" * (n_rows * body // 8)]), objective, tokenizer, batch_size=n_rows, seq_len=seq_len
    )
    marks = sentinels(tokenizer).tolist()
    assert len(marks) == len(objective.special_tokens(seq_len))  # not one too many
    hidden, firsts, lengths = 0, [], []
    for source, _, predicted in pairs(next(batches)):
        if len(source) < seq_len - 1:
            continue  # the rest of the stream
        text, spans = restored(source[:-1], predicted[:-1], marks)
        hidden += sum(spans) / len(text)
        lengths += spans
        firsts.append(source.index(marks[0]))
    assert abs(hidden / len(firsts) - rate) < 0.5 / body + 1e-9
    noise, count = objective.counts(body)
    assert abs(np.mean(lengths) - noise / count) < 1e-9
    assert noise / count == pytest.approx(mean, rel=0.15)
    # the first span begins after a stretch of kept tokens whose length has the mean of any such stretch
    kept = (body - noise) / count
    assert abs(np.mean(firsts) - kept) < 4.5 * np.std(firsts) / sqrt(len(firsts))


def t5(seq_len: int, rate: float, mean: float) -> tuple[int, int]:
    """(tokens of a row, of its target) as T5's ``random_spans_helper`` states them: one eos each, a sentinel a span."""

    def sides(n: int) -> tuple[int, int]:
        noise = round(n * rate)
        spans = round(noise / mean)
        return (n - noise) + spans + 1, noise + spans + 1

    n = seq_len - 1
    while sides(n + 1)[0] <= seq_len:
        n += 1
    return n, sides(n)[1]


@pytest.mark.parametrize("seq_len", [64, 114, 512, 1024])
@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.15, 20.0), (0.3, 8.0), (0.4, 3.0)])
def test_the_lengths_are_those_of_t5(seq_len: int, rate: float, mean: float) -> None:
    objective = Span(rate, mean)
    body = objective.body(seq_len, 1)
    assert (body, sum(objective.counts(body)) + 1) == t5(seq_len, rate, mean)
    assert t5(512, 0.15, 3.0) == (568, 114)  # as published


def test_short_rows(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    batches = Batches(listed(["a", "ab"]), Span(join=False), tokenizer, batch_size=1, seq_len=8)
    (one,), (two,) = (pairs(batch) for batch in batches.once())
    first = sentinels(tokenizer).tolist()[0]
    a, b = tokenizer.encode("ab")
    assert one == ([first, tokenizer.eos_id], [tokenizer.bos_id, first, a], [first, a, tokenizer.eos_id])
    assert two[0] == [a, first, tokenizer.eos_id]
    assert two[2] == [first, b, tokenizer.eos_id]


def test_a_sentinel_that_a_text_spells_is_a_text(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    batches = Batches(listed(["ab<extra_id_0>cd"]), Span(join=False), tokenizer, batch_size=1, seq_len=32)
    (row,) = pairs(next(batches.once()))
    assert sum(token in sentinels(tokenizer) for token in row[0]) == 1


def test_what_it_needs(letters: MakeTokenizer) -> None:
    few = train_tokenizer("char", ["abc"], extra_special_tokens=["<extra_id_0>", "<extra_id_1>"])
    with pytest.raises(ConfigError, match=r"need the sentinels <extra_id_0> … <extra_id_4> \(got '2 in the tok"):
        Span().build(few, 100)
    with pytest.raises(ConfigError, match="hidden spans and their sentinels must fit"):
        Span(rate=0.9, mean=1).build(letters(), 64)
    with pytest.raises(ConfigError, match="needs a model of kind encoder-decoder"):
        Span().check(preset("gpt2"), letters(), 64)
    Span().check(preset("t5-small"), letters(), 64)
    for options in ({"rate": 0}, {"rate": 1}, {"mean": 0.5}):
        with pytest.raises(ConfigError):
            from_data(Objective, {"kind": "span", **options})
    for objective in (Span(), Span(0.3, 5, False)):
        assert from_data(Objective, to_data(objective)) == objective


def test_nothing_is_ignored_but_padding(letters: MakeTokenizer) -> None:
    """pad = eos: the real end is labelled."""
    tokenizer = letters(pad="</s>")
    batches = Batches(listed(["abcdef" * 3, "abc"]), Span(join=False), tokenizer, batch_size=2, seq_len=64)
    (batch,) = batches.once()
    assert ((batch.labels != IGNORE) == (batch.tags.position >= 0)).all()
    assert (batch.labels == tokenizer.eos_id).sum().item() == 2
