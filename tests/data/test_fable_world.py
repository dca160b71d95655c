"""The house world: what lives in it, whether it is exact, and whether its Chinese and English are well formed."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from functools import cache
from itertools import pairwise

import pytest

from transpect.data.fable import END_OF_STORY, Fable, Sentence, Story
from transpect.data.fable.automaton import DONE
from transpect.data.fable.chances import SLOTS
from transpect.data.fable.plot import SCENES
from transpect.data.fable.world import ANIMALS, ENTRIES

LANGUAGES = ("zh", "en")
FABLE = Fable()


@cache
def _all_sentences() -> tuple[Sentence, ...]:
    machine = FABLE.automaton
    return tuple(s for state in machine.states() for s in machine.sentences(state) if s.zh_words)


@cache
def _stories(n: int) -> tuple[Story, ...]:
    return tuple(FABLE.story("world", i) for i in range(n))


def test_the_cat_mostly_eats_fish() -> None:
    for answer in (FABLE.next_word("小猫爱吃"), FABLE.next_char("小猫爱吃")):
        assert next(iter(answer)) == "鱼"
        assert answer["鱼"] >= 0.6
    assert next(iter(FABLE.next_word("The cat loves to eat", "en"))) == "fish"
    assert any(s.zh == "小猫爱吃鱼。" and s.en == "The cat loves to eat fish." for s in _all_sentences())
    openings = sum(story.zh.startswith("小猫爱吃") for story in _stories(2000)) / 2000
    assert openings > 0.07


@pytest.mark.parametrize("animal", ANIMALS)
def test_each_animal_has_graded_tastes_and_the_text_knows_them(animal: str) -> None:
    hero, row = ENTRIES[animal], SLOTS["food"].table[animal]
    total = sum(row.values())
    assert list(row.values()) == sorted(row.values(), reverse=True)
    assert max(row.values()) >= 0.5 * total
    assert len(set(row.values())) > 1
    for lang, prefix in (("zh", f"{hero.zh['']}爱吃"), ("en", f"{hero.en['The']} loves to eat")):
        forms = {food: ENTRIES[food].forms(lang)[""] for food in row}  # type: ignore[arg-type]
        words = FABLE.next_word(prefix, lang)  # type: ignore[arg-type]
        chars = FABLE.next_char(prefix + " " * (lang == "en"), lang)  # type: ignore[arg-type]
        for food, form in forms.items():
            first = form.split()[0]
            share = sum(weight for other, weight in row.items() if forms[other].split()[0] == first) / total
            assert math.isclose(words[first], share, abs_tol=1e-12), food
            same = sum(weight for other, weight in row.items() if forms[other][0] == form[0]) / total
            assert math.isclose(chars[form[0]], same, abs_tol=1e-12), food


def test_every_text_has_one_derivation() -> None:
    """Every state, both languages: the page refuses sentences that are equal or begin one another."""
    machine = FABLE.automaton
    for state in machine.states():
        sentences = machine.sentences(state)
        assert math.isclose(math.fsum(s.p for s in sentences), 1, abs_tol=1e-12)
        for lang in LANGUAGES:
            page = machine.page(state, lang)
            assert len(page.texts) + bool(page.stop) == len(sentences)
            assert len(set(page.texts)) == len(page.texts)


def test_sentences_translate_each_other_one_to_one_in_every_state() -> None:
    machine = FABLE.automaton
    for state in machine.states():
        pairs = {(s.zh, s.en) for s in machine.sentences(state)}
        assert len({zh for zh, _ in pairs}) == len({en for _, en in pairs}) == len(machine.sentences(state))


def test_stories_have_two_to_five_sentences() -> None:
    machine = FABLE.automaton
    lengths: dict[object, set[int]] = {DONE: {0}}
    for state in reversed(machine.states()):
        if state != DONE:
            lengths[state] = {n + bool(s.zh_words) for s in machine.sentences(state) for n in lengths[s.to]}
    assert lengths[machine.start] <= {2, 3, 4, 5}
    assert max(lengths[machine.start]) == 5


def test_nothing_in_the_tables_is_rare() -> None:
    for name, slot in SLOTS.items():
        for row in slot.table.values():
            assert min(row.values()) / sum(row.values()) >= 0.02, name
    for scene, frames in SCENES.items():
        assert min(frame.weight for frame in frames) / sum(frame.weight for frame in frames) >= 0.02, scene


def test_no_character_is_a_rare_turn() -> None:
    for story in _stories(150):
        for i in range(len(story.zh) + 1):
            assert min(FABLE.next_char(story.zh[:i]).values()) > 0.004, story.zh[:i]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_lexicon_and_the_alphabet_are_complete(lang: str) -> None:
    lexicon, alphabet = FABLE.lexicon(lang), FABLE.alphabet(lang)  # type: ignore[arg-type]
    assert 250 <= len(lexicon) <= 400
    assert END_OF_STORY not in lexicon
    assert {word for s in _all_sentences() for word in s.words(lang)} == set(lexicon)  # type: ignore[arg-type]
    assert {char for s in _all_sentences() for char in s.text(lang)} | set(" " * (lang == "en")) == alphabet  # type: ignore[arg-type]
    assert all(set(story.text(lang)) <= alphabet for story in _stories(500))  # type: ignore[arg-type]


def test_english_articles_agree_with_the_next_sound() -> None:
    for words in {s.en_words for s in _all_sentences()}:
        for article, word in pairwise(words):
            if article.lower() in {"a", "an"}:
                assert (article.lower() == "an") == (word[0] in "aeiou"), " ".join(words)


def test_english_verbs_agree_with_their_subject() -> None:
    singular = {entry.en[""] for entry in ENTRIES.values() if "The" in entry.en and "" in entry.en}
    for words in {s.en_words for s in _all_sentences()}:
        text = " ".join(words)
        if words[0] == "They" or (words[0] == "The" and words[2] == "and"):
            verb = words[1] if words[0] == "They" else words[5]
            assert not verb.endswith("s"), text
        elif words[0] == "It" or (words[0] == "The" and words[1] in singular):
            verb = next(word for word in words[1 if words[0] == "It" else 2 :] if not word.endswith("ly"))
            assert verb.endswith("s") or verb == "cannot", text


def test_english_is_typeset_as_english() -> None:
    for text in {s.en for s in _all_sentences()}:
        assert text[0].isupper(), text
        assert re.search(r"[.!?]”?$", text), text
        assert not re.search(r"  | [,.!?:”]|“ ", text), text
        assert text.count("“") == text.count("”"), text
        assert text.isascii() or set(text) - {"“", "”"} <= set(map(chr, range(128))), text


def test_chinese_is_typeset_as_chinese() -> None:
    for text in {s.zh for s in _all_sentences()}:
        assert re.search(r"[。！？]”?$", text), text
        assert not re.search(r"[A-Za-z\s,.!?:]", text), text
        assert text.count("“") == text.count("”"), text


def test_each_noun_keeps_to_one_measure_word() -> None:
    measures = defaultdict(set)
    for words in {s.zh_words for s in _all_sentences()}:
        for i, measure in enumerate(words):
            if re.fullmatch("[一这][顶个把本面只匹头条碗根棵袋捆盒串块罐篮件副盏支]", measure):
                noun = words[i + 3] if words[i + 2] == "的" else words[i + 1]
                measures[noun].add(measure[1])
    assert {entry.zh[""] for entry in ENTRIES.values() if "a" in entry.zh} <= measures.keys()
    assert not {noun: found for noun, found in measures.items() if len(found) > 1}


def test_later_sentences_depend_on_what_was_told() -> None:
    """The same words after two beginnings that differ in one place far back must be answered differently."""
    then = "下雨了，它躲在桥下。小狗带着一把雨伞来了。小猫请小狗吃"
    for food in ("鱼", "虾", "蛋糕"):
        assert FABLE.next_word(f"小猫爱吃{food}。今天{then}") == {food: 1.0}
    gifts = [
        set(FABLE.next_word(f"小猫爱吃鱼。今天{weather}，它{act}。小狗给小猫送来"))
        for weather, act in (("下雨了", "躲在桥下"), ("下雪了", "缩在火炉边"), ("打雷了", "钻到了床下"))
    ]
    assert gifts == [{"一把", "一件"}, {"一条", "一副"}, {"一支", "一个"}]
