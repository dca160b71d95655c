"""Training: what it refuses, that it repeats itself, where special tokens go, and how good Unigram is."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, trainers

from transpect.base.errors import TokenizerError
from transpect.text import KINDS, Bpe, Tokenizer, Unigram, WordPiece, train_tokenizer
from transpect.text.kinds import unigram_em
from transpect.text.kinds.unigram_em import train_unigram

LM_KINDS = ("char", "bpe", "byte-bpe")


# sizes


@pytest.mark.parametrize(
    ("kind", "size", "full"),
    [
        ("char", 420, False),
        ("bpe", 200, True),
        ("bpe", 280, True),
        ("byte-bpe", 400, True),
        ("wordpiece", 240, True),
        ("unigram", 170, True),
        ("unigram", 600, False),
    ],
)
def test_vocab_size_is_an_upper_bound(kind: str, size: int, full: bool, everything: list[str]) -> None:
    tokenizer = train_tokenizer(kind, everything, size)
    assert tokenizer.vocab_size == size if full else tokenizer.vocab_size <= size
    ids = set(tokenizer.backend.get_vocab(with_added_tokens=True).values())
    assert ids == set(range(tokenizer.vocab_size))


@pytest.mark.parametrize(
    ("kind", "options", "texts", "least"),
    [
        ("char", {}, ["abc"], 4 + 3),
        ("bpe", {"byte_fallback": False}, ["abc"], 4 + 3),
        ("bpe", {"byte_fallback": True}, ["abc"], 4 + 256 + 1),
        ("byte-bpe", {}, ["abc"], 3 + 256),
        ("wordpiece", {}, ["abc bc"], 5 + 3 + 2),  # a b c ##b ##c
        ("unigram", {}, ["abc"], 3 + 1 + 3),  # ▁ a b c
    ],
)
def test_the_smallest_vocabulary_is_named(kind: str, options: dict[str, bool], texts: list[str], least: int) -> None:
    with pytest.raises(TokenizerError) as error:
        train_tokenizer(kind, texts, least - 1, **options)
    assert f"vocab_size ≥ {least}" in str(error.value)
    assert f"Raise vocab_size to {least} or more" in str(error.value)
    tokenizer = train_tokenizer(kind, texts, least, **options)
    assert tokenizer.vocab_size <= least
    assert tokenizer.unk_id is None or tokenizer.unk_id not in tokenizer.encode(texts[0])


def test_byte_fallback_makes_room_for_rare_characters() -> None:
    texts = [chr(0x4E00 + i) * (200 - i // 2) for i in range(400)]
    for kind in ("char", "bpe"):
        tokenizer = train_tokenizer(kind, texts, 400, byte_fallback=True)
        assert len(tokenizer.encode(chr(0x4E00))) == 1  # the most frequent
        assert len(tokenizer.encode(chr(0x4E00 + 399))) == 3  # in bytes
        assert tokenizer.decode(tokenizer.encode("".join(texts))) == "".join(texts)
    with pytest.raises(TokenizerError, match="byte_fallback"):
        train_tokenizer("char", texts, 400)


def test_bpe_takes_bytes_along_where_there_is_room() -> None:
    assert train_tokenizer("bpe", ["猫"], 2048).token_to_id("<0x00>") is not None
    assert train_tokenizer("bpe", ["猫"], 2047).token_to_id("<0x00>") is None


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_coverage_leaves_rare_characters_out(kind: str) -> None:
    texts = ["ab " * 500, "z"]
    assert train_tokenizer(kind, texts, 60).token_to_id("z") is not None
    rare = train_tokenizer(kind, texts, 60, character_coverage=0.99)
    assert rare.token_to_id("z") is None
    assert rare.unk_id in rare.encode("z")


def test_no_merge_is_learnt_across_a_missing_character() -> None:
    tokenizer = train_tokenizer("bpe", ["azb"] * 5 + ["a b" * 400], 60, character_coverage=0.99)
    assert tokenizer.token_to_id("ab") is None


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece"])
def test_min_frequency_stops_merging(kind: str) -> None:
    texts = ["hello " * 3]
    assert len(train_tokenizer(kind, texts, 500, min_frequency=4).encode("hello")) == 5
    assert len(train_tokenizer(kind, texts, 500, min_frequency=3).encode("hello")) == 1


# what is refused


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        ([], "there is none"),
        ([""], "there is none"),
        (["<s></s>", ""], "there is none"),
        ("one string", "not one"),
        ([b"bytes"], "text 0 must be a string"),
        (["a", None], "text 1 must be a string"),
        (["a", "\ud800"], "valid Unicode"),
    ],
)
@pytest.mark.parametrize("kind", ["char", "byte-bpe"])
def test_bad_texts_are_refused(kind: str, texts: list[str], rule: str) -> None:
    with pytest.raises(TokenizerError, match=rule):
        train_tokenizer(kind, texts, 500)


def test_texts_that_are_nothing_once_normalised_are_refused() -> None:
    with pytest.raises(TokenizerError, match="have none once they are normalised"):
        train_tokenizer("wordpiece", [" \n", "\x00"], 500)
    assert train_tokenizer("char", [" \n", "\x00"]).vocab_size == 4 + 3


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"kind": "bpee"}, "Kinds: char, bpe, byte-bpe, wordpiece, unigram"),
        ({"kind": "bpe", "vocab_size": None}, "needs a vocab_size"),
        ({"kind": "unigram", "vocab_size": None}, "needs a vocab_size"),
        ({"kind": "char", "vocab_size": 0}, "from 1"),
        ({"kind": "char", "vocab_size": 9.5}, "whole number"),
        ({"kind": "char", "merges": 3}, "has no such option.*byte_fallback"),
        ({"kind": "unigram", "min_frequency": 3}, "has no such option"),
        ({"kind": Bpe(), "lowercase": True}, "belong to the kind"),
        ({"kind": "char", "special_tokens": {"begin": "<s>"}}, "unknown special-token role"),
        ({"kind": "char", "special_tokens": {"bos": ""}}, "non-empty"),
        ({"kind": "char", "special_tokens": {"unk": None}}, "needs a special token for the role 'unk'"),
        ({"kind": "char", "unicode_form": "nfd"}, "nfc, nfkc or None"),
        ({"kind": "bpe", "character_coverage": 0.0}, "character_coverage"),
        ({"kind": "unigram", "max_piece_length": 0}, "max_piece_length"),
        ({"kind": "byte-bpe", "special_tokens": {"bos": "é"}}, "must decode to itself"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], rule: str) -> None:
    with pytest.raises(TokenizerError, match=rule):
        train_tokenizer(**{"texts": ["abc"], "vocab_size": 500, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("spelling", ["byte-bpe", "byte_bpe", "byte-level-bpe"])
def test_other_spellings(spelling: str) -> None:
    assert train_tokenizer(spelling, iter(["abc"]), 300).decode([5, 6]) is not None


# special tokens


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_in_order(kind: str) -> None:
    tokenizer = train_tokenizer(
        kind, ["abc"], 600, special_tokens={"mask": "<mask>"}, extra_special_tokens=["<|user|>"]
    )
    roles = {**KINDS[kind].default_roles, "mask": "<mask>"}
    assert [tokenizer.id_to_token(i) for i in range(len(roles) + 1)] == [*roles.values(), "<|user|>"]
    assert tokenizer.special_tokens == {role: roles[role] for role in tokenizer.special_tokens}
    assert tokenizer.special_ids == set(range(len(roles) + 1))


def test_one_token_may_hold_several_roles() -> None:
    end = "<|endoftext|>"
    tokenizer = train_tokenizer("byte-bpe", ["abc"], 300, special_tokens={"bos": end, "eos": end, "pad": end})
    assert tokenizer.bos_id == tokenizer.eos_id == tokenizer.pad_id == 0
    assert tokenizer.encode("a", add_special_tokens=True) == [0, *tokenizer.encode("a")]


@pytest.mark.parametrize("kind", LM_KINDS)
def test_language_models_get_one_bos(kind: str) -> None:
    tokenizer = train_tokenizer(kind, ["abc"], 600)
    ids = tokenizer.encode("ab", add_special_tokens=True)
    assert ids == [tokenizer.bos_id, *tokenizer.encode("ab")]
    assert tokenizer.encode_pair("ab", "c") == (
        [tokenizer.bos_id, *tokenizer.encode("ab"), *tokenizer.encode("c")],
        [0, 0, 0, 1],
    )
    assert tokenizer.adds_bos
    assert not train_tokenizer(kind, ["abc"], 600, special_tokens={"bos": None}).adds_bos


def test_bert_template() -> None:
    tokenizer = train_tokenizer("wordpiece", ["ab cd"], 100)
    a, b = tokenizer.encode("ab"), tokenizer.encode("cd")
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert tokenizer.encode("ab", add_special_tokens=True) == [cls, *a, sep]
    assert tokenizer.encode_pair("ab", "cd") == (
        [cls, *a, sep, *b, sep],
        [0] * (len(a) + 2) + [1] * (len(b) + 1),
    )
    assert tokenizer.encode_pair("ab", "cd", add_special_tokens=False)[0] == a + b


def test_t5_template() -> None:
    tokenizer = train_tokenizer("unigram", ["ab cd"], 100)
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.bos_id) == (0, 1, 2, None)
    assert tokenizer.encode("ab", add_special_tokens=True) == [*tokenizer.encode("ab"), 1]
    assert not tokenizer.adds_bos


def test_special_tokens_in_the_corpus_are_not_learnt_from() -> None:
    clean = train_tokenizer("bpe", ["ab", "cd"] * 3, 60)
    assert train_tokenizer("bpe", ["ab</s>cd<pad>"] * 3, 60).backend.to_str() == clean.backend.to_str()


# determinism

SCRIPT = """
import hashlib, sys
from transpect.text import train_tokenizer
words = "the cat cats catty dog dogs doggy fish fishes fishy bird birds birdy 小猫 小狗 小鱼 小鸟".split()
texts = [f"{a} {b}" for a in words for b in words]
for kind in ("char", "bpe", "byte-bpe", "wordpiece", "unigram"):
    size = 110 if kind == "wordpiece" else 300
    json = train_tokenizer(kind, iter(texts), size).backend.to_str(pretty=True)
    print(kind, hashlib.sha256(json.encode()).hexdigest())
"""


def test_training_repeats_itself_across_hash_seeds_and_threads() -> None:
    # Every pair of words is as frequent as every other: nothing but ties.
    outputs = set()
    for seed, threads in (("0", "1"), ("1", "2"), ("2", "3"), ("3", "1")):
        env = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_iterator_gives_what_a_list_gives(kind: str, everything: list[str]) -> None:
    def once() -> Iterator[str]:
        yield from everything

    def digest(tokenizer: Tokenizer) -> str:
        return hashlib.sha256(tokenizer.backend.to_str().encode()).hexdigest()

    assert digest(train_tokenizer(kind, once(), 500)) == digest(train_tokenizer(kind, everything, 500))


# quality


def log_likelihood(backend: Backend, texts: list[str]) -> float:
    scores = dict(json.loads(backend.to_str())["model"]["vocab"])
    return sum(
        scores.get(token, -30.0) for text in texts for token in backend.encode(text, add_special_tokens=False).tokens
    )


def test_unigram_is_no_worse_than_the_trainer_of_tokenizers() -> None:
    words = ("trans", "form", "er", "former", "at", "tent", "ion", "re", "in", "put", "out", "小猫", "爱吃", "鱼")
    texts = [f"{a}{b}{c} {c}{a}" for a in words for b in words for c in words[::2]]
    for size in (60, 120):
        ours = train_tokenizer("unigram", texts, size).backend
        theirs = Backend(models.Unigram())
        theirs.normalizer, theirs.pre_tokenizer = ours.normalizer, ours.pre_tokenizer
        trainer = trainers.UnigramTrainer(
            vocab_size=size,
            show_progress=False,
            unk_token="<unk>",
            special_tokens=list(Unigram.default_roles.values()),
        )
        theirs.train_from_iterator(texts, trainer)
        assert log_likelihood(ours, texts) >= log_likelihood(theirs, texts)


WORD_COUNTS = st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=8)


def segmentations(word: str, pieces: dict[str, float]) -> list[list[str]]:
    """All ways to spell a word."""
    if not word:
        return [[]]
    return [
        [word[:n], *rest]
        for n in range(1, len(word) + 1)
        if word[:n] in pieces
        for rest in segmentations(word[n:], pieces)
    ]


@given(WORD_COUNTS, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_unigram_expectation_and_best_paths_are_those_of_all_segmentations(
    counts: dict[str, int], random: Random
) -> None:
    alphabet = sorted(set("".join(counts)))
    text, words = unigram_em._flatten(counts, alphabet)
    pieces = unigram_em._seed(text, words, len(alphabet), limit=100, longest=4)
    pieces = replace(pieces, logp=np.array([math.log(random.uniform(0.01, 1)) for _ in pieces.logp]))
    spelled = ["".join(alphabet[c] for c in text[s : s + n]) for s, n in zip(pieces.start, pieces.length, strict=True)]
    logp = dict(zip(spelled, pieces.logp.tolist(), strict=True))

    expected = dict.fromkeys(spelled, 0.0)
    best, respelled = [], []
    for word, count in counts.items():
        ways = segmentations(word, logp)
        weights = [math.exp(sum(logp[piece] for piece in way)) for way in ways]
        best.append(math.log(max(weights)))
        for way, weight in zip(ways, weights, strict=True):
            for piece in way:
                expected[piece] += count * weight / sum(weights)
    for piece in spelled:
        others = {other: score for other, score in logp.items() if other != piece}
        ways = segmentations(piece, others)
        respelled.append(max((sum(logp[p] for p in way) for way in ways), default=-math.inf))

    uses = unigram_em._expected_uses(pieces, words)
    np.testing.assert_allclose(uses, [expected[piece] for piece in spelled], rtol=1e-9, atol=1e-12)
    found, _ = unigram_em._best_paths(pieces, words, np.full(len(words.length), -2))
    np.testing.assert_allclose(sorted(found), sorted(best), rtol=1e-9)
    as_words, order = unigram_em._Words(pieces.start, pieces.length, np.ones(len(spelled))).longest_first()
    found, _ = unigram_em._best_paths(pieces, as_words, order)
    np.testing.assert_allclose(found, np.array(respelled)[order], rtol=1e-9)


@given(WORD_COUNTS)
@settings(max_examples=50, deadline=None)
def test_unigram_seeds_are_all_substrings_that_occur_twice(counts: dict[str, int]) -> None:
    alphabet = sorted(set("".join(counts)))
    text, words = unigram_em._flatten(counts, alphabet)
    pieces = unigram_em._seed(text, words, len(alphabet), limit=10_000, longest=5)
    spelled = ["".join(alphabet[c] for c in text[s : s + n]) for s, n in zip(pieces.start, pieces.length, strict=True)]
    occurs = Counter[str]()
    for word, count in counts.items():
        for a in range(len(word)):
            for b in range(a + 1, min(a + 5, len(word)) + 1):
                occurs[word[a:b]] += count
    assert spelled[: len(alphabet)] == alphabet
    assert set(spelled) == set(alphabet) | {piece for piece, count in occurs.items() if count >= 2}
    assert len(spelled) == len(set(spelled))


def test_unigram_digamma() -> None:
    gamma = 0.5772156649015329
    x = np.array([0.5, 1.0, 2.0, 3.0, 10.0, 1e6])
    exact = [-gamma - 2 * math.log(2), -gamma, 1 - gamma, 1.5 - gamma, 2.251752589066721, math.log(1e6) - 0.5e-6]
    np.testing.assert_allclose(unigram_em._digamma(x), exact, atol=1e-9)


def test_unigram_maximises_the_likelihood_of_its_text() -> None:
    """Two words of equal letters: EM finds that the pieces are the words, where counts of substrings can't tell."""
    pieces = dict(train_unigram({"abab": 50, "ab": 50, "b": 1}, ["a", "b"], 4))
    assert set(pieces) == {"a", "b", "ab", "abab"}
    assert pieces["ab"] > pieces["b"] + 2 > pieces["a"]


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 9), min_size=1, max_size=12),
    st.integers(0, 12),
    st.integers(1, 5),
)
@settings(max_examples=150, deadline=None)
def test_unigram_pieces_are_a_distribution_over_substrings(counts: dict[str, int], more: int, longest: int) -> None:
    alphabet = sorted(set("".join(counts)))
    pieces = train_unigram(counts, alphabet, len(alphabet) + more, longest)
    names = [piece for piece, _ in pieces]
    assert set(alphabet) <= set(names)
    assert len(names) == len(set(names)) <= len(alphabet) + more
    assert all(len(name) <= longest and any(name in word for word in counts) for name in names)
    assert sum(2.718281828459045**score for _, score in pieces) == pytest.approx(1, abs=1e-4)


def test_wordpiece_marks_the_inside_of_words() -> None:
    tokenizer = train_tokenizer(WordPiece(lowercase=False), ["play, playing, played, plays"] * 5, 26)
    assert all(piece.startswith("##") for piece in tokenizer.tokens(tokenizer.encode("playing"))[1:])
    assert tokenizer.decode(tokenizer.encode("playing, played")) == "playing, played"
    assert tokenizer.encode("Play")[0] == tokenizer.unk_id
