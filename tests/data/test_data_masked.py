"""Masked examples: what may be hidden, how often, whole words, and the same again from the same seed."""

import sys
from collections.abc import Callable
from math import sqrt

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, DataError
from transpect.core import AttentionConfig, Full, ModelConfig, NormalInit, SameSegment, StackConfig, Transformer, preset
from transpect.core.heads import MaskedLM
from transpect.core.positions import Rope
from transpect.data.batch import IGNORE, Batch
from transpect.data.fable import Fable
from transpect.data.loader import Batches
from transpect.data.objectives import Masked, Objective
from transpect.data.sources import Document, Listed, Stories
from transpect.text import Tokenizer, train_tokenizer

MakeTokenizer = Callable[..., Tokenizer]
FRAMES = [{"mask": "<mask>"}, {"mask": "<mask>", "cls": "<cls>"}, {"mask": "<mask>", "cls": "<cls>", "sep": "<sep>"}]
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def listed(texts: list[str]) -> Listed:
    return Listed([Document(text) for text in texts])


def original(batch: Batch) -> torch.Tensor:
    """The ids before anything was hidden."""
    return torch.where(batch.labels == IGNORE, batch.ids, batch.labels)


def rows(batch: Batch) -> list[tuple[list[int], list[int], list[int]]]:
    """(original ids, ids, labels) of each segment."""
    found = []
    for b in range(len(batch.ids)):
        for number in sorted(set(batch.tags.segment[b].tolist()) - {-1}):
            here = (batch.tags.segment[b] == number) & (batch.tags.position[b] >= 0)
            assert batch.tags.position[b][here].tolist() == list(range(int(here.sum())))
            found.append(tuple(each[b][here].tolist() for each in (original(batch), batch.ids, batch.labels)))
    return found


@pytest.mark.parametrize("specials", FRAMES, ids=len)
@pytest.mark.parametrize("pack", [True, False])
@quick
@given(
    texts=st.lists(st.text("abc 天#", min_size=1, max_size=25), min_size=1, max_size=8).filter(
        lambda texts: any(set(text) - {"#"} for text in texts)
    ),
    seq_len=st.integers(3, 30),
    rate=st.sampled_from([0.01, 0.15, 0.9]),
    seed=st.integers(0, 3),
)
def test_invariants(
    specials: dict[str, str],
    pack: bool,
    texts: list[str],
    seq_len: int,
    rate: float,
    seed: int,
    letters: MakeTokenizer,
) -> None:
    tokenizer = letters(**specials)  # `#` is unknown to it
    objective = Masked(rate=rate, pack=pack)
    batches = Batches(listed(texts), objective, tokenizer, batch_size=3, seq_len=seq_len, seed=seed)
    before = [i for i in [tokenizer.cls_id] if i is not None]
    after = [i for i in [tokenizer.sep_id] if i is not None]
    body = seq_len - len(before) - len(after)
    documents = [tokenizer.encode(text) for text in texts]
    chunks = [ids[i : i + body] for ids in documents for i in range(0, len(ids), body)]
    expected = [[*before, *chunk, *after] for chunk in chunks if set(chunk) - tokenizer.special_ids]
    found = [row for batch in batches.once() for row in rows(batch)]
    assert sorted(source for source, _, _ in found) == sorted(expected)
    for source, ids, labels in found:
        hidden = [i for i, label in enumerate(labels) if label != IGNORE]
        assert hidden
        assert not any(source[i] in tokenizer.special_ids for i in hidden)
        assert all(ids[i] == source[i] for i in range(len(ids)) if i not in hidden)
        assert all(ids[i] == tokenizer.mask_id or ids[i] not in tokenizer.special_ids for i in hidden)
    for batch in batches.once():
        assert (batch.labels[batch.tags.position < 0] == IGNORE).all()
        if pack:
            assert batch.ids.shape[1] == seq_len


# how often


def within(count: int, n: int, p: float) -> bool:
    """Within 4.5 standard deviations of Binomial(n, p): a right program fails one seed in 150,000."""
    return abs(count - n * p) < 4.5 * sqrt(n * p * (1 - p))


@pytest.mark.parametrize("words", [1, 3, 10])
@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_each_word_is_chosen_as_often_as_stated(words: int, rate: float, letters: MakeTokenizer) -> None:
    """p = rate + (1 − rate)^w / w for each place of w words, long or short."""
    tokenizer = letters(mask="<mask>")
    text = " ".join(("ab" if i % 2 else "abcde") for i in range(words))
    n = 4000
    batch = next(Batches(listed([text] * 1000), Masked(rate), tokenizer, batch_size=n, seq_len=64))
    w = words + text.count(" ")  # a blank is a word by itself
    p = rate + (1 - rate) ** w / w
    chosen = (batch.labels != IGNORE).sum(0).tolist()
    for place, count in enumerate(chosen):
        assert within(count, n, p) if w > 1 else count == n, (place, count, n * p)
    # words are chosen independently of each other, but for the rule that there is one
    if w > 5:
        together = int(((batch.labels[:, 0] != IGNORE) & (batch.labels[:, -1] != IGNORE)).sum())
        assert within(together, n, rate**2)


@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.1), (1.0, 0.0), (0.0, 0.0), (0.0, 1.0), (0.5, 0.5)])
def test_what_is_chosen_is_masked_exchanged_or_left_as_often_as_stated(
    mask: float, random: float, letters: MakeTokenizer
) -> None:
    tokenizer = letters(mask="<mask>")
    objective = Masked(rate=0.5, mask=mask, random=random, whole_word=False)
    batch = next(Batches(listed(["abcdefgh" * 5] * 500), objective, tokenizer, batch_size=1000, seq_len=64))
    chosen = batch.labels != IGNORE
    n, ids, labels = int(chosen.sum()), batch.ids[chosen], batch.labels[chosen]
    ordinary = tokenizer.vocab_size - len(tokenizer.special_ids)
    masked, left = int((ids == tokenizer.mask_id).sum()), int((ids == labels).sum())
    for count, p in ((masked, mask), (left, 1 - mask - random + random / ordinary)):
        if p in (0.0, 1.0):
            assert count == n * p
        else:
            assert within(count, n, p)


def test_exchanged_tokens_are_any_ordinary_token_alike(letters: MakeTokenizer) -> None:
    tokenizer = letters(mask="<mask>")
    objective = Masked(rate=0.9, mask=0, random=1, whole_word=False)
    batch = next(Batches(listed(["a" * 50] * 500), objective, tokenizer, batch_size=1000, seq_len=64))
    drawn = batch.ids[batch.labels != IGNORE]
    counts = torch.bincount(drawn, minlength=tokenizer.vocab_size)
    ordinary = [i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids]
    assert int(counts[ordinary].sum()) == len(drawn)
    mean = len(drawn) / len(ordinary)
    chi2 = float(((counts[ordinary] - mean) ** 2 / mean).sum())
    degrees = len(ordinary) - 1
    assert abs(chi2 - degrees) < 5 * sqrt(2 * degrees)


def test_parts_of_a_word_share_their_fate_but_not_their_replacement(letters: MakeTokenizer) -> None:
    batch = next(Batches(listed(["abcdefgh"] * 500), Masked(), letters(mask="<mask>"), batch_size=500, seq_len=64))
    assert (batch.labels != IGNORE).all()  # one word: always the one that is chosen
    masked = (batch.ids == letters(mask="<mask>").mask_id).sum(1)
    assert len(set(masked.tolist())) > 3


# whole words


def chosen_words(batch: Batch, groups: list[list[int]]) -> bool:
    """Whether each group of places is chosen as a whole or not at all in every row."""
    chosen = batch.labels != IGNORE
    return all(bool((chosen[:, group].all(1) == chosen[:, group].any(1)).all()) for group in groups)


def test_word_pieces_are_never_parted() -> None:
    # `€` is a word by the house rule, and part of one to WordPiece
    texts = [f"{Fable('en').story(0, i).en} a{i}€b" for i in range(200)]
    tokenizer = train_tokenizer("wordpiece", texts, 150)
    assert tokenizer.token_to_id("##€") is not None
    batches = Batches(listed(texts), Masked(rate=0.3), tokenizer, batch_size=50, seq_len=512)
    parted = 0
    for batch in batches.once():
        for row in range(len(batch.ids)):
            pieces = [tokenizer.id_to_token(i) or "" for i in original(batch)[row].tolist()]
            groups: list[list[int]] = []
            for place, piece in enumerate(pieces):
                if piece.startswith("##"):
                    groups[-1].append(place)
                else:
                    groups.append([place])
            parted += sum(len(group) > 1 for group in groups)
            for group in groups:
                chosen = {bool(batch.labels[row, place] != IGNORE) for place in group}
                assert len(chosen) == 1, [pieces[place] for place in group]
    assert parted > 1000


def test_chinese_words_are_those_of_the_source_where_it_knows_them() -> None:
    world = Fable("zh")
    stories = Stories("zh", stories=20).documents()
    tokenizer = train_tokenizer(
        "char", [story.text for story in Stories("zh", stories=500).documents()], special_tokens={"mask": "<mask>"}
    )
    long_words = 0
    for story in stories:
        known, unknown = Listed([story] * 30, stories.segmenter), Listed([story] * 30)
        batch = next(Batches(known, Masked(rate=0.3), tokenizer, batch_size=30, seq_len=512))
        groups: list[list[int]] = []
        at = 0
        for word in world.words(story.text):
            groups.append(list(range(at, at + len(word))))
            at += len(word)
        assert at == batch.ids.shape[1]
        long_words += sum(len(group) > 1 for group in groups)
        assert chosen_words(batch, groups)
        # and without the source's knowledge a character is a word, so that the test can fail
        plain = next(Batches(unknown, Masked(rate=0.3), tokenizer, batch_size=30, seq_len=512))
        assert not chosen_words(plain, groups)
    assert long_words > 50


def test_tokens_are_chosen_one_by_one_where_words_are_not_wanted(letters: MakeTokenizer) -> None:
    batch = next(
        Batches(listed(["abcd"]), Masked(0.5, whole_word=False), letters(mask="<mask>"), batch_size=100, seq_len=8)
    )
    assert not chosen_words(batch, [[0, 1], [2, 3]])


# again


def test_masks_are_fresh_in_each_epoch_and_the_same_from_the_same_seed(letters: MakeTokenizer) -> None:
    tokenizer = letters(mask="<mask>")

    def epochs(seed: int) -> list[torch.Tensor]:
        batches = Batches(
            listed(["ab cd ef gh ij kl mn"] * 4), Masked(), tokenizer, batch_size=4, seq_len=32, seed=seed
        )
        return [next(batches).labels for _ in range(6)]

    first, again, other = epochs(1), epochs(1), epochs(2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert len({tuple(labels.flatten().tolist()) for labels in first}) == 6
    assert len({tuple(row) for labels in first for row in labels.tolist()}) > 10  # equal documents, other masks


def test_the_masks_of_an_evaluation_do_not_change(letters: MakeTokenizer) -> None:
    batches = Batches(listed(["ab cd ef gh"] * 4), Masked(), letters(mask="<mask>"), batch_size=3, seq_len=32)
    first = [batch.ids for batch in batches.once()]
    next(batches)
    assert all(torch.equal(a, b.ids) for a, b in zip(first, batches.once(), strict=True))


# packing with a real encoder


@torch.no_grad()
def test_a_packed_document_does_not_feel_its_neighbour(letters: MakeTokenizer) -> None:
    tokenizer, objective = letters(mask="<mask>", cls="<cls>", sep="<sep>"), Masked(pack=True)
    stack = StackConfig(2, AttentionConfig(n_heads=2), positions=Rope(), visibility=Full())
    config = ModelConfig(tokenizer.vocab_size, 16, 64, encoder=stack, head=MaskedLM(), init=NormalInit(std=0.2))
    adapted = objective.adapt(config)
    assert adapted.encoder is not None
    assert adapted.encoder.visibility == Full() & SameSegment()
    model = Transformer(adapted, seed=1)
    (batch,) = Batches(listed(["abcde", "catdog"]), objective, tokenizer, batch_size=1, seq_len=24).once()
    second = batch.tags.segment == 1
    ids = batch.ids.clone()
    ids[batch.tags.segment == 0] = tokenizer.encode("z")[0]
    a, b = (model(each, tags=batch.tags)[second] for each in (batch.ids, ids))
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    alone = model(batch.ids[second][None])[0]
    torch.testing.assert_close(a, alone, atol=1e-5, rtol=0)


# refusals


@pytest.mark.parametrize(
    "options", [{"rate": 0.0}, {"rate": 1.0}, {"rate": -1}, {"mask": 0.9, "random": 0.2}, {"mask": -0.1}, {"p": 1}]
)
def test_shares_that_can_not_be(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        from_data(Objective, {"kind": "masked", **options})


def test_what_it_needs(letters: MakeTokenizer) -> None:
    bert = preset("bert-base")
    Masked().check(bert, letters(mask="<mask>"), 8)
    with pytest.raises(ConfigError, match="needs a tokenizer with the special token mask"):
        Masked().check(bert, letters(), 8)
    with pytest.raises(ConfigError, match="seq_len must be at least 3"):
        Masked().check(bert, letters(mask="<mask>", cls="<cls>", sep="<sep>"), 2)
    with pytest.raises(DataError, match="something to predict"):
        Batches(listed(["##", "#"]), Masked(), letters(mask="<mask>"), batch_size=1, seq_len=8)


def test_options_go_through_data_and_back() -> None:
    for objective in (Masked(), Masked(0.3, 0.5, 0.2, False, ngrams=(1.0, 0.5), together=True, pack=True)):
        assert from_data(Objective, to_data(objective)) == objective


# n-grams


@pytest.mark.parametrize("ngrams", [(0.4, 0.3, 0.2, 0.1), (0, 0, 1), tuple(0.2 * 0.8**n for n in range(10))])
def test_runs_of_words_add_up_to_the_rate(ngrams: tuple[float, ...], letters: MakeTokenizer) -> None:
    """⌊rate·w⌋ or ⌈rate·w⌉ words, 0.15·w on average, in runs of the lengths asked for."""
    tokenizer, w, n = letters(mask="<mask>"), 41, 2000
    text = " ".join(["ab", "cde", "f"] * 7)  # 21 words and 20 blanks, which are words too
    objective = Masked(ngrams=ngrams)
    batch = next(Batches(listed([text] * 500), objective, tokenizer, batch_size=n, seq_len=64))
    starts = [i for i, char in enumerate(text) if i == 0 or char == " " or text[i - 1] == " "]
    assert len(starts) == w
    groups = [list(range(a, b)) for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    assert chosen_words(batch, groups)
    chosen = (batch.labels != IGNORE)[:, starts]
    counts = chosen.sum(1)
    assert set(counts.tolist()) == {6, 7}
    assert abs(int(counts.sum()) - 0.15 * w * n) < 4.5 * sqrt(n * 0.15 * 0.85)
    # runs: 1 follows another as often as their lengths say, so fewer of them than words by their mean length
    runs = int(chosen[:, 0].sum()) + int((chosen[:, 1:] & ~chosen[:, :-1]).sum())
    mean = sum(length * weight for length, weight in enumerate(ngrams, 1)) / sum(ngrams)
    assert int(counts.sum()) / mean * 0.8 < runs < int(counts.sum()) / mean * 1.6


def test_an_ngram_shares_its_fate_where_that_is_asked_for(letters: MakeTokenizer) -> None:
    tokenizer = letters(mask="<mask>")
    objective = Masked(rate=0.4, mask=0.5, random=0.0, ngrams=(0, 0, 0, 1), together=True)
    batch = next(Batches(listed(["天地玄黄宇宙洪荒天地"] * 100), objective, tokenizer, batch_size=400, seq_len=16))
    chosen, masked = batch.labels != IGNORE, batch.ids == tokenizer.mask_id
    assert (chosen.sum(1) == 4).all()
    hidden = (masked & chosen).sum(1)
    assert set(hidden.tolist()) == {0, 4}
    assert within(int((hidden == 4).sum()), 400, 0.5)


def test_words_of_a_segmenter(letters: MakeTokenizer) -> None:
    pytest.importorskip("rjieba")
    text = "小明 硕士毕业于中国科学院计算所，good good"
    tokenizer = train_tokenizer("char", [text], special_tokens={"mask": "<mask>"})
    objective = Masked(rate=0.3, segmenter="jieba")
    batch = next(Batches(listed([text] * 50), objective, tokenizer, batch_size=200, seq_len=64))
    groups, at = list[list[int]](), 0
    for word in ["小明", " ", "硕士", "毕业", "于", "中国科学院", "计算所", "，", "good", " ", "good"]:
        groups.append(list(range(at, at + len(word))))
        at += len(word)
    assert at == len(text)
    assert chosen_words(batch, groups)
    plain = next(Batches(listed([text] * 50), Masked(rate=0.3), tokenizer, batch_size=200, seq_len=64))
    assert not chosen_words(plain, groups)


def test_a_segmenter_that_is_not_there(letters: MakeTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(ConfigError, match=r"needs the package rjieba .*pip install 'transpect\[zh\]'"):
        Masked(segmenter="jieba").check(preset("bert-base"), letters(mask="<mask>"), 8)
    for options in (
        {"ngrams": []},
        {"ngrams": [0, 0]},
        {"ngrams": [-1, 2]},
        {"segmenter": "jieba", "whole_word": False},
    ):
        with pytest.raises(ConfigError):
            from_data(Objective, {"kind": "masked", **options})
