"""Entropy, floors and probabilities of the house world, each by two ways that share no code."""

from __future__ import annotations

import itertools
import math
from statistics import fmean, stdev

import pytest

from transpect.base.errors import ConfigError, DataError
from transpect.data.fable import END_OF_STORY, Fable, Language, Story, join

LANGUAGES: tuple[Language, ...] = ("zh", "en")
N = 4000


@pytest.fixture(scope="module")
def fable() -> Fable:
    return Fable()


@pytest.fixture(scope="module")
def stories(fable: Fable) -> list[Story]:
    return list(itertools.islice(fable.stories("measures"), N))


def _within(sample: list[float], exact: float) -> bool:
    return abs(fmean(sample) - exact) < 4 * stdev(sample) / math.sqrt(len(sample))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_log_probability_read_from_the_text_is_that_of_the_derivation(
    fable: Fable, stories: list[Story], lang: Language
) -> None:
    for story in stories:
        assert math.isclose(fable.story_logprob(story.text(lang), lang), story.logprob, abs_tol=1e-9), story


@pytest.mark.parametrize("lang", LANGUAGES)
def test_entropy_and_lengths_are_the_means_of_sampled_stories(
    fable: Fable, stories: list[Story], lang: Language
) -> None:
    measures = fable.measures(lang)
    assert _within([-fable.story_logprob(story.text(lang), lang) for story in stories], measures.entropy)
    assert _within([len(story.text(lang)) for story in stories], measures.chars)
    assert _within([len(story.words(lang)) for story in stories], measures.words)
    assert _within([len(story.sentences) for story in stories], measures.sentences)


def test_both_languages_have_the_same_entropy_in_every_place(fable: Fable) -> None:
    zh, en = (fable.measures(lang) for lang in LANGUAGES)
    assert math.isclose(zh.entropy, en.entropy, rel_tol=1e-12)
    assert [(row.scene, row.position, row.reach, row.nats) for row in zh.by_sentence] == [
        (row.scene, row.position, row.reach, row.nats) for row in en.by_sentence
    ]
    assert math.isclose(math.fsum(row.reach * row.nats for row in zh.by_sentence), fable.entropy(), rel_tol=1e-12)


def test_entropy_by_sentence_is_the_mean_of_what_each_sentence_costs(fable: Fable, stories: list[Story]) -> None:
    measures = fable.measures()
    for position in range(1, 6):
        rows = [row for row in measures.by_sentence if row.position == position]
        exact = math.fsum(row.reach * row.nats for row in rows)
        assert _within([_cost(fable, story, position) for story in stories], exact), position


def _cost(fable: Fable, story: Story, position: int) -> float:
    """−ln P(sentence or end at this position | text before), from the texts alone."""
    before = "".join(s.zh for s in story.sentences[: position - 1])
    if position > len(story.sentences) + 1:
        return 0.0
    if position == len(story.sentences) + 1:
        return -math.log(fable.next_char(before)[END_OF_STORY])
    through = before + story.sentences[position - 1].zh
    places = [fable.automaton.find(text, "zh") for text in (before, through)]
    return places[0].logprob - places[1].logprob


@pytest.mark.parametrize("lang", LANGUAGES)
def test_characters_and_words_multiply_to_the_story(fable: Fable, stories: list[Story], lang: Language) -> None:
    for story in stories[:40]:
        text = story.text(lang)
        chars = sum(math.log(fable.next_char(text[:i], lang)[char]) for i, char in enumerate([*text, END_OF_STORY]))
        told = [*story.words(lang), END_OF_STORY]
        words = sum(math.log(fable.next_word(join(told[:i], lang), lang)[word]) for i, word in enumerate(told))
        assert math.isclose(chars, story.logprob, abs_tol=1e-9)
        assert math.isclose(words, story.logprob, abs_tol=1e-9)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_after_every_prefix_words_and_characters_agree(fable: Fable, stories: list[Story], lang: Language) -> None:
    for story in stories[:40]:
        text = story.text(lang)
        for i in range(len(text) + 1):
            chars, words = fable.next_char(text[:i], lang), fable.next_word(text[:i], lang)
            assert math.isclose(math.fsum(chars.values()), 1, abs_tol=1e-12)
            assert math.isclose(math.fsum(words.values()), 1, abs_tol=1e-12)
            assert chars.get(END_OF_STORY) == words.get(END_OF_STORY)
            for values in (chars, words):
                assert list(values.values()) == sorted(values.values(), reverse=True)
            if i and (lang == "zh" or text[i - 1] != " "):
                continue
            first: dict[str, float] = {}
            for word, p in words.items():
                char = word if word == END_OF_STORY else word[0]
                first[char] = first.get(char, 0) + p
            assert first.keys() == chars.keys()
            assert all(math.isclose(first[char], chars[char], abs_tol=1e-12) for char in chars)


def test_at_chinese_word_borders_characters_are_the_words_beginnings(fable: Fable, stories: list[Story]) -> None:
    for story in stories[:60]:
        at = 0
        for word in story.words("zh"):
            chars, words = fable.next_char(story.zh[:at]), fable.next_word(story.zh[:at])
            for char, p in chars.items():
                same = math.fsum(q for w, q in words.items() if (w == char if char == END_OF_STORY else w[0] == char))
                assert math.isclose(p, same, abs_tol=1e-12), story.zh[:at]
            at += len(word)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_is_no_story_has_probability_zero(fable: Fable, stories: list[Story], lang: Language) -> None:
    text = stories[0].text(lang)
    for wrong in ("", text[:-1], text + text, text + "。", f" {text}", text.replace(text[3], "狼", 1)):
        assert fable.story_logprob(wrong, lang) == -math.inf


def test_optimal_loss_is_the_mean_over_all_tokens(fable: Fable, stories: list[Story]) -> None:
    texts = [story.zh for story in stories[:300]]
    nats = -sum(story.logprob for story in stories[:300])
    assert math.isclose(fable.optimal_loss(texts), nats / sum(len(text) + 1 for text in texts), rel_tol=1e-9)
    pairs = fable.optimal_loss(texts, tokenize=lambda text: [text[i : i + 2] for i in range(0, len(text), 2)])
    assert math.isclose(pairs, nats / sum(math.ceil(len(text) / 2) + 1 for text in texts), rel_tol=1e-9)
    assert abs(fable.optimal_loss([s.zh for s in stories]) - fable.measures().floor_per_char) < 0.005


def test_optimal_loss_names_the_text_that_is_no_story(fable: Fable, stories: list[Story]) -> None:
    with pytest.raises(DataError, match="text 1 "):
        fable.optimal_loss([stories[0].zh, "小猫爱吃"])
    with pytest.raises(DataError, match="at least one"):
        fable.optimal_loss([])


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_floor_of_a_tokenizer_is_sampled_around_the_exact_one(fable: Fable, lang: Language) -> None:
    measures = fable.measures(lang)
    for tokenize, exact in (
        (list, measures.floor_per_char),
        (lambda text: fable.words(text, lang), measures.floor_per_word),
    ):
        floor = fable.floor_per_token(tokenize, lang, samples=1000)
        assert 0 < floor.stderr < 0.02 * exact
        assert abs(floor.value - exact) < 4 * floor.stderr
    with pytest.raises(DataError, match="at least 2"):
        fable.floor_per_token(list, lang, samples=1)


def test_a_language_it_does_not_speak_is_refused(fable: Fable) -> None:
    with pytest.raises(ConfigError, match="zh, en"):
        Fable("fr")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="zh, en"):
        fable.next_char("", "both")  # type: ignore[arg-type]
