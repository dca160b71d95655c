"""Streams of stories, segmentation, and prefixes that can't be."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys

import pytest

from transpect.base.errors import ConfigError, DataError
from transpect.data.fable import END_OF_STORY, Fable, Language, join

LANGUAGES: tuple[Language, ...] = ("zh", "en")
FABLE = Fable()


@pytest.mark.parametrize("start", [0, 1, 17])
def test_a_stream_can_be_entered_anywhere(start: int) -> None:
    stream = list(itertools.islice(FABLE.stories(7, start), 20))
    assert stream == [FABLE.story(7, start + i) for i in range(20)]
    assert [story.index for story in stream] == list(range(start, start + 20))
    assert FABLE.story(7, start + 19) == Fable("en").story(7, start + 19)


def test_other_seeds_tell_other_stories() -> None:
    one, two = ([FABLE.story(seed, i).zh for i in range(50)] for seed in ("train", "valid"))
    assert one != two
    assert len(set(one)) > 40


def test_an_index_below_0_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 or more"):
        FABLE.story(1, -1)


PROGRAM = """
import hashlib
from transpect.data.fable import Fable
fable = Fable()
told = "".join(story.zh + story.en for story in (fable.story(3, i) for i in range(200)))
told += repr(fable.next_word("小猫"))
print(hashlib.sha256(told.encode()).hexdigest())
"""


def test_every_process_tells_the_same() -> None:
    answers = set()
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
        answers.add(done.stdout)
    told = "".join(story.zh + story.en for story in (FABLE.story(3, i) for i in range(200)))
    told += repr(FABLE.next_word("小猫"))
    assert answers == {hashlib.sha256(told.encode()).hexdigest() + "\n"}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_words_cut_a_story_as_it_was_told(lang: Language) -> None:
    lexicon = FABLE.lexicon(lang)
    for story in itertools.islice(FABLE.stories("words"), 300):
        words = FABLE.words(story.text(lang), lang)
        assert tuple(words) == story.words(lang)
        assert join(words, lang) == story.text(lang)
        assert all(word in lexicon for word in words)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_words_of_a_beginning_are_the_story_s_words_cut_off(lang: Language) -> None:
    for story in itertools.islice(FABLE.stories("words"), 40):
        text, whole = story.text(lang), list(story.words(lang))
        for i in range(len(text) + 1):
            words = FABLE.words(text[:i], lang)
            assert words[:-1] == whole[: max(len(words) - 1, 0)], text[:i]
            assert not words or whole[len(words) - 1].startswith(words[-1]), text[:i]
            assert join(words, lang) == text[:i].rstrip(" ")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_first_position_that_can_t_be_is_told(lang: Language) -> None:
    alphabet = sorted(FABLE.alphabet(lang))
    for number, story in enumerate(itertools.islice(FABLE.stories("wrong"), 15)):
        text = story.text(lang)
        for i in range(len(text) + 1):
            wrong = alphabet[(7 * i + number) % len(alphabet)]
            if wrong in FABLE.next_char(text[:i], lang):
                continue
            for ask in (FABLE.next_char, FABLE.next_word, FABLE.words):
                with pytest.raises(DataError, match=f"position {i} can't be") as caught:
                    ask(text[:i] + wrong + text[i:], lang)
            likeliest = next(iter(FABLE.next_char(text[:i], lang)))
            assert likeliest in str(caught.value)


def test_after_the_end_there_is_nothing() -> None:
    story = FABLE.story("end", 0)
    finished = next(s for s in FABLE.stories("end") if len(s.sentences) == 5)
    assert FABLE.next_word(finished.zh) == {END_OF_STORY: 1.0}
    with pytest.raises(DataError, match=f"position {len(finished.zh)} can't be"):
        FABLE.next_word(finished.zh + story.zh)
