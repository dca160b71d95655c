"""Fable, the storyteller: stories by number, and everything that can be known of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from math import log

from transpect.base.errors import ConfigError
from transpect.data.fable import automaton as machine
from transpect.data.fable import measures as numbers
from transpect.data.fable.automaton import DONE, Automaton, Sentence
from transpect.data.fable.grammar import LANGUAGES, Grammar, Language
from transpect.data.fable.measures import Estimate, Measures
from transpect.data.fable.plot import GRAMMAR


@dataclass(frozen=True, slots=True)
class Story:
    """One story, told in both languages by the same sentences."""

    seed: int | str
    index: int
    sentences: tuple[Sentence, ...]
    logprob: float  # ln P(story), in nats; the same in both languages

    def text(self, lang: Language) -> str:
        return machine.join(self.words(lang), lang)

    def words(self, lang: Language) -> tuple[str, ...]:
        """The words of the story, punctuation marks among them."""
        return tuple(word for sentence in self.sentences for word in sentence.words(lang))

    @property
    def zh(self) -> str:
        return self.text("zh")

    @property
    def en(self) -> str:
        return self.text("en")


class Fable:
    """The built-in bilingual world: an endless stream of small stories whose every probability is known.

    Args:
        lang: the language that methods answer in when a call names none.
        grammar: another world, told by the same machine; the house's own by default.

    Story i of a seed is a function of (seed, i) alone, so a stream can be entered anywhere and two seeds are two
    independent streams. Different streams are independent samples of one distribution, so short stories recur.
    """

    def __init__(self, lang: Language = "zh", grammar: Grammar | None = None) -> None:
        self.lang = _checked(lang)
        self.automaton = _house_automaton() if grammar is None else Automaton(grammar)

    def story(self, seed: int | str, index: int) -> Story:
        """Story ``index`` of stream ``seed``."""
        if index < 0:
            raise ConfigError("a story's index must be 0 or more", value=index)
        rng = random.Random(f"fable:{seed}:{index}")
        state, told, logprob = self.automaton.start, [], 0.0
        while state != DONE:
            sentence = self.automaton.choose(state, rng.random())
            logprob += log(sentence.p)
            state = sentence.to
            if sentence.zh_words:
                told.append(sentence)
        return Story(seed, index, tuple(told), logprob)

    def stories(self, seed: int | str, start: int = 0) -> Iterator[Story]:
        """Stories ``start``, ``start + 1``, … of stream ``seed``, without end."""
        return (self.story(seed, index) for index in count(start))

    def next_char(self, prefix: str = "", lang: Language | None = None) -> dict[str, float]:
        """P(next character | prefix), exact, the likeliest first. END_OF_STORY is the chance that the story is over.

        Raises:
            DataError: no story begins with the prefix; the message gives the first position that can't be.
        """
        return machine.next_char(self.automaton.find(prefix, self._lang(lang)))

    def next_word(self, prefix: str = "", lang: Language | None = None) -> dict[str, float]:
        """P(next word | prefix), exact, the likeliest first, with END_OF_STORY; punctuation marks count as words.

        A prefix that can be read as whole words is, and then the chances of a story's words multiply to its own. Any
        other ends inside a word, or in the space before an English one, and that word is told whole.

        Raises:
            DataError: as for ``next_char``.
        """
        return machine.next_word(self.automaton.find(prefix, self._lang(lang)))

    def story_logprob(self, text: str, lang: Language | None = None) -> float:
        """ln P(the story is exactly ``text``), in nats; −∞ for what is no story."""
        return numbers.story_logprob(self.automaton, text, self._lang(lang))

    def optimal_loss(
        self,
        texts: Iterable[str],
        lang: Language | None = None,
        tokenize: Callable[[str], Sequence[object]] = list,
    ) -> float:
        """The loss that the true distribution has on these very stories: Σ −ln P(story) / Σ (tokens + 1).

        In nats per token, the end of each story counted as a token; ``tokenize`` defaults to characters. This is the
        number to set a model's validation loss against: the sampling noise of the stories is in both.

        Raises:
            DataError: there is no text, or one that is no whole story.
        """
        return numbers.optimal_loss(self.automaton, texts, self._lang(lang), tokenize)

    def entropy(self, lang: Language | None = None) -> float:
        """H(story) in nats, exact; the same in both languages."""
        return self.measures(lang).entropy

    def measures(self, lang: Language | None = None) -> Measures:
        """Entropy, expected lengths and floors, exact; see ``transpect.data.fable.measures`` for the formulas."""
        return numbers.measure(self.automaton, self._lang(lang))

    def floor_per_token(
        self,
        tokenize: Callable[[str], Sequence[object]],
        lang: Language | None = None,
        samples: int = 2000,
        seed: int | str = "floor",
    ) -> Estimate:
        """The least loss of a model over ``tokenize``'s tokens, H(story) / (E[tokens] + 1), in nats per token.

        The end of the story is the "+ 1". H is exact: where text and tokens determine each other, the tokens have the
        text's entropy. Only E[tokens] is sampled, and the standard error is its. For characters and words the exact
        floors are ``measures(lang).floor_per_char`` and ``.floor_per_word``.
        """
        which = self._lang(lang)
        lengths = [len(tokenize(story.text(which))) for story in islice(self.stories(seed), samples)]
        return numbers.floor_per_token(self.entropy(which), lengths)

    def lexicon(self, lang: Language | None = None) -> dict[str, float]:
        """Each word of the world and how often a story has it on average, the commonest first."""
        return dict(numbers.word_counts(self.automaton, self._lang(lang)))

    def alphabet(self, lang: Language | None = None) -> frozenset[str]:
        """Each character that a story can have."""
        which = self._lang(lang)
        space = frozenset(" " if which == "en" else "")
        return space.union(*numbers.word_counts(self.automaton, which))

    def words(self, text: str, lang: Language | None = None) -> list[str]:
        """The words of a story or of the beginning of one, punctuation marks among them.

        A last word that the text cuts off is given as far as it goes; where it could be the beginning of several,
        the likeliest counts.

        Raises:
            DataError: no story begins with the text.
        """
        return machine.segment(self.automaton.find(text, self._lang(lang)))

    def _lang(self, lang: Language | None) -> Language:
        return self.lang if lang is None else _checked(lang)


def _checked(lang: Language) -> Language:
    if lang not in LANGUAGES:
        raise ConfigError(
            "fable must be asked in a language it speaks", value=lang, remedy=f"Choose from {', '.join(LANGUAGES)}"
        )
    return lang


@cache
def _house_automaton() -> Automaton:
    return Automaton(GRAMMAR)
