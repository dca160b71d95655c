"""The machine against brute force: in a world small enough, every story is written out and counted."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from typing import Any

import pytest

from transpect.base.errors import ConfigError, DataError
from transpect.data.fable import END_OF_STORY, Entry, Fable, Frame, Grammar, Slot

# Words begin other words (小 in 小猫, 鱼 in 鱼干, "cat" in "cats"), so characters and words part at different places.
ENTRIES = {
    "cat": Entry({"": "小猫"}, {"": "cat", "The": "The cat"}),
    "cats": Entry({"": "小猫 们"}, {"": "cats", "The": "The cats"}),
    "mouse": Entry({"": "小"}, {"": "mouse", "The": "The mouse"}),
    "fish": Entry({"": "鱼"}, {"": "fish"}),
    "dried": Entry({"": "鱼干"}, {"": "fishcake"}),
    "rice": Entry({"": "米"}, {"": "rice"}),
    "rain": Entry({"": "下雨"}, {"": "rains"}),
    "snow": Entry({"": "下雪"}, {"": "snows"}),
    "eats": Entry({"": "吃 {food}"}, {"": "eats {food}"}),
    "sleeps": Entry({"": "睡 了"}, {"": "sleeps"}),
}
SLOTS = {
    "hero": Slot({"": {"cat": 5, "cats": 1, "mouse": 2}}),
    "food": Slot({"cat": {"fish": 3, "dried": 1}, "cats": {"dried": 1}, "mouse": {"fish": 2, "rice": 5}}, given="hero"),
    "sky": Slot({"": {"rain": 2, "snow": 1}}, fresh=True),
    "deed": Slot(
        {"fish": {"eats": 3, "sleeps": 1}, "dried": {"eats": 1}, "rice": {"sleeps": 4, "eats": 1}}, given="food"
    ),
}
SCENES = {
    "start": (
        Frame(3, "{hero} 爱 {food} 。", "{hero.The} : {food} .", "sky"),
        Frame(1, "{hero} 说 ： “ {food} 。 ”", "{hero.The} says , “ A {food} . ”", "deed"),
        Frame(1, "{hero} {food} ！", "{hero.The} , {food} !"),
    ),
    "sky": (
        Frame(2, "{sky} 。", "It {sky} .", "deed"),
        Frame(1, "", ""),
        Frame(1, "{sky} ， {sky} ！", "Look , it {sky} !", "deed"),
    ),
    "deed": (Frame(5, "{hero} {deed} 。", "{hero.The} {deed} .", "again"), Frame(2, "完 。", "The end .")),
    "again": (Frame(4, "{sky} 。", "It {sky} ."), Frame(1, "", "")),
}
LANGUAGES = ("zh", "en")
Derivation = tuple[float, tuple[str, ...], str]
World = tuple[str, Fable, list[Derivation]]


def _grammar(**changes: Any) -> Grammar:
    return Grammar(**{"entries": ENTRIES, "slots": SLOTS, "scenes": SCENES, **changes})


def _brute(lang: str) -> list[Derivation]:
    """(probability, words, text) of every derivation, by plain recursion over whole stories."""

    def render(pattern: str, values: dict[str, str]) -> list[str]:
        while "{" in pattern:
            for slot, entry in values.items():
                forms = getattr(ENTRIES[entry], lang)
                for form, words in forms.items():
                    pattern = pattern.replace(f"{{{slot}.{form}}}" if form else f"{{{slot}}}", words)
        return pattern.split()

    def row(slot: str, values: dict[str, str]) -> dict[str, int]:
        given = SLOTS[slot].given
        return dict(SLOTS[slot].table[values[given] if given else ""])

    def grow(scene: str, told: dict[str, str], p: float, words: tuple[str, ...]) -> None:
        frames = SCENES[scene]
        for frame in frames:
            share = p * frame.weight / sum(f.weight for f in frames)
            named = {slot for slot in ("sky", "hero", "food", "deed") if f"{{{slot}" in frame.zh + frame.en}
            named |= {"food", "hero"} if "deed" in named else set()
            named |= {"hero"} if "food" in named else set()
            new = [slot for slot in ("sky", "hero", "food", "deed") if slot in named and slot not in told]
            for entries in itertools.product(*[ENTRIES] * len(new)):
                values = {**told, **dict(zip(new, entries, strict=True))}
                chance = share
                for slot in new:
                    if SLOTS[slot].given and values[SLOTS[slot].given] not in SLOTS[slot].table:
                        chance = 0
                        break
                    weights = row(slot, values)
                    chance *= weights.get(values[slot], 0) / sum(weights.values())
                if chance:
                    said = (*words, *render(getattr(frame, lang), values))
                    kept = {slot: value for slot, value in values.items() if slot != "sky"}
                    if frame.to:
                        grow(frame.to, kept, chance, said)
                    else:
                        found.append((chance, said, _join(said, lang)))

    found: list[Derivation] = []
    grow("start", {}, 1.0, ())
    return found


def _join(words: tuple[str, ...], lang: str) -> str:
    if lang == "zh":
        return "".join(words)
    text = " ".join(words)
    for mark in ",.!?:”":
        text = text.replace(f" {mark}", mark)
    return text.replace("“ ", "“")


@pytest.fixture(scope="module", params=LANGUAGES)
def world(request: pytest.FixtureRequest) -> World:
    return request.param, Fable(request.param, _grammar()), _brute(request.param)


def test_the_toy_is_large_enough_to_matter(world: World) -> None:
    _, _, stories = world
    assert len(stories) > 150
    assert math.isclose(sum(p for p, _, _ in stories), 1, abs_tol=1e-12)


def test_each_text_has_one_derivation_and_its_probability(world: World) -> None:
    _, fable, stories = world
    assert max(Counter(text for _, _, text in stories).values()) == 1
    for p, _, text in stories:
        assert math.isclose(fable.story_logprob(text), math.log(p), abs_tol=1e-12)


def test_entropy_and_lengths_are_those_of_the_list(world: World) -> None:
    lang, fable, stories = world
    measures = fable.measures(lang)
    assert math.isclose(measures.entropy, -sum(p * math.log(p) for p, _, _ in stories), rel_tol=1e-12)
    assert math.isclose(measures.chars, sum(p * len(text) for p, _, text in stories), rel_tol=1e-12)
    assert math.isclose(measures.words, sum(p * len(words) for p, words, _ in stories), rel_tol=1e-12)
    assert measures.longest == max(len(text) for _, _, text in stories)
    assert math.isclose(measures.floor_per_char, measures.entropy / (measures.chars + 1), rel_tol=1e-12)
    assert math.isclose(measures.floor_per_word, measures.entropy / (measures.words + 1), rel_tol=1e-12)


def test_next_char_is_counted_right_after_every_prefix(world: World) -> None:
    _, fable, stories = world
    counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for p, _, text in stories:
        for i in range(len(text) + 1):
            counts[text[:i]][text[i] if i < len(text) else END_OF_STORY] += p
    for prefix, row in counts.items():
        _same(fable.next_char(prefix), row)


def test_next_word_is_counted_right_after_every_prefix(world: World) -> None:
    lang, fable, stories = world
    counts: dict[tuple[str, bool], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for p, words, text in stories:
        ends = [len(_join(words[: i + 1], lang)) for i in range(len(words))]
        for i in range(len(text)):
            owner = next(word for word, end in zip(words, ends, strict=True) if i < end)
            counts[text[:i], i in {0, *ends}][owner] += p
        counts[text, True][END_OF_STORY] += p
    for (prefix, whole), row in counts.items():
        if whole or (prefix, True) not in counts:
            _same(fable.next_word(prefix), row)


def test_the_chances_of_words_multiply_to_the_story(world: World) -> None:
    lang, fable, stories = world
    for p, words, _ in stories:
        chances = [fable.next_word(_join(words[:i], lang))[word] for i, word in enumerate([*words, END_OF_STORY])]
        assert math.isclose(math.prod(chances), p, rel_tol=1e-12)


def test_word_counts_are_expectations(world: World) -> None:
    lang, fable, stories = world
    counts: dict[str, float] = defaultdict(float)
    for p, words, _ in stories:
        for word in words:
            counts[word] += p
    lexicon = fable.lexicon(lang)
    assert lexicon.keys() == counts.keys()
    assert all(math.isclose(lexicon[word], count, rel_tol=1e-12) for word, count in counts.items())
    assert fable.alphabet(lang) == set("".join(text for _, _, text in stories))


def test_stories_are_drawn_as_often_as_they_should_be(world: World) -> None:
    lang, fable, stories = world
    n = 4000
    drawn = Counter(fable.story("draw", i).text(lang) for i in range(n))
    probabilities = {text: p for p, _, text in stories}
    assert drawn.keys() <= probabilities.keys()
    common = {text: p for text, p in probabilities.items() if p * n >= 10}
    chi2 = sum((drawn[text] - n * p) ** 2 / (n * p) for text, p in common.items())
    freedom = len(common)
    assert chi2 < freedom + 5 * math.sqrt(2 * freedom)


def _same(got: dict[str, float], masses: dict[str, float]) -> None:
    total = sum(masses.values())
    assert got.keys() == masses.keys()
    assert all(math.isclose(got[key], mass / total, abs_tol=1e-12) for key, mass in masses.items())
    assert list(got.values()) == sorted(got.values(), reverse=True)


AMBIGUOUS = {
    "twins": (Frame(1, "{hero} 。", "{hero.The} .", "end"), Frame(1, "{hero} 。", "{hero.The} !", "end")),
    "hidden slot": (Frame(1, "下雨 。", "The {hero} .", "end"),),
    "one begins the other": (Frame(1, "{hero}", "{hero.The} .", "end"), Frame(1, "{hero} 来", "{hero.The} !", "end")),
    "two silent ends": (Frame(1, "", ""), Frame(2, "", "")),
}  # fmt: skip


@pytest.mark.parametrize("scene", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_a_world_that_says_the_same_in_two_ways_is_refused(scene: tuple[Frame, ...]) -> None:
    scenes = {"start": scene, "end": (Frame(1, "完 。", "End ."),)}
    if all(not frame.to for frame in scene):
        del scenes["end"]
    with pytest.raises(ConfigError, match="scene"):
        Fable("zh", Grammar(ENTRIES, SLOTS, scenes)).next_char("")


BROKEN = {
    "unknown slot": {"scenes": {"start": (Frame(1, "{nobody} 。", "x ."),)}},
    "unknown scene": {"scenes": {"start": (Frame(1, "好 。", "Good .", "nowhere"),)}},
    "circle": {"scenes": {"start": (Frame(1, "好 。", "Good .", "start"),)}},
    "unreached scene": {"scenes": {"start": (Frame(1, "好 。", "Good ."),), "island": (Frame(1, "好 。", "Good ."),)}},
    "empty scene": {"scenes": {"start": (Frame(1, "好 。", "Good .", "next"),), "next": ()}},
    "no start": {"scenes": {"next": (Frame(1, "好 。", "Good ."),)}},
    "silence that goes on": {"scenes": {"start": (Frame(1, "", "", "next"),), "next": (Frame(1, "好 。", "Good ."),)}},
    "one language": {"scenes": {"start": (Frame(1, "好 。", ""),)}},
    "weight 0": {"scenes": {"start": (Frame(0, "好 。", "Good ."),)}},
    "slot weight 0": {"slots": {**SLOTS, "sky": Slot({"": {"rain": 0}})}},
    "missing row": {"slots": {**SLOTS, "food": Slot({"cat": {"fish": 1}}, given="hero")}},
    "unknown entry": {"slots": {**SLOTS, "sky": Slot({"": {"hail": 1}})}},
    "unknown given": {"slots": {**SLOTS, "sky": Slot({"": {"rain": 1}}, given="month")}},
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_grammar_is_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        _grammar(**changes)


def test_a_form_that_an_entry_lacks_is_named() -> None:
    scenes = {"start": (Frame(1, "{hero.plural} 。", "{hero} ."),)}
    with pytest.raises(ConfigError, match="plural"):
        Fable("zh", Grammar(ENTRIES, SLOTS, scenes)).next_char("")


def test_a_place_that_no_story_reaches_is_told_by_position(world: World) -> None:
    _, fable, stories = world
    for _, _, text in stories[::25]:
        for i in range(len(text) + 1):
            with pytest.raises(DataError, match=f"position {i} "):
                fable.next_char(text[:i] + "§" + text[i:])
