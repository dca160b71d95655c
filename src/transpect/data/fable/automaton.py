"""The grammar as a probabilistic automaton, and exact answers about any prefix.

A *state* is a scene and the values of the slots that still matter. From a state leave finitely many sentences, each
with its probability and its next state; a story is a path to the state ``DONE``. In each language the sentences of a
state are different strings and none begins another (checked when a state is first read, in ``Automaton.page``), and a
sentence has one next state. So by induction a prefix has exactly one past: the belief over states and derivations that
a filter would carry is always a single state and an interval of its sorted sentences, those that go on as the prefix
does. The exact distribution after a prefix is a sum over that interval.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import fsum, log

from transpect.base.errors import ConfigError, DataError
from transpect.data.fable.grammar import END, LANGUAGES, Grammar, Language

END_OF_STORY = "<eos>"  # the key under which next_char and next_word give the chance that the story is over

SENTENCE_SPACE: dict[Language, str] = {"zh": "", "en": " "}  # belongs to the sentence after it

_NO_SPACE_BEFORE = frozenset(",.!?:”")
_NO_SPACE_AFTER = frozenset("“")


@dataclass(frozen=True, slots=True)
class State:
    """A scene and the remembered values, in the order of the slots' names."""

    scene: str
    values: tuple[tuple[str, str], ...] = ()


DONE = State(END)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence in both languages, the chance to choose it in its state, and where it leads.

    A sentence without words is the end of the story.
    """

    scene: str
    zh_words: tuple[str, ...]
    en_words: tuple[str, ...]
    p: float
    to: State

    def words(self, lang: Language) -> tuple[str, ...]:
        return self.zh_words if lang == "zh" else self.en_words

    def text(self, lang: Language) -> str:
        return join(self.words(lang), lang)

    @property
    def zh(self) -> str:
        return self.text("zh")

    @property
    def en(self) -> str:
        return self.text("en")


@dataclass(frozen=True, slots=True)
class Page:
    """A state's sentences in one language, sorted as strings, and the chance ``stop`` that none follows.

    ``ends[i]`` tells after how many characters each word of sentence i ends.
    """

    texts: list[str]
    sentences: list[Sentence]
    lang: Language
    ends: list[list[int]]
    stop: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a prefix stands: ``depth`` characters into the sentences ``low:high`` of a page."""

    page: Page
    low: int
    high: int
    depth: int
    logprob: float  # of all sentences that are complete
    words: tuple[str, ...]  # of all sentences that are complete


def join(words: tuple[str, ...] | list[str], lang: Language) -> str:
    """Words as text: Chinese runs on, English is spaced, with punctuation where it belongs."""
    if lang == "zh":
        return "".join(words)
    return "".join(_spaced(words))


def _spaced(words: tuple[str, ...] | list[str]) -> list[str]:
    """English words, each with the space that parts it from the one before."""
    glued = [not i or word in _NO_SPACE_BEFORE or words[i - 1] in _NO_SPACE_AFTER for i, word in enumerate(words)]
    return [word if close else f" {word}" for word, close in zip(words, glued, strict=True)]


@dataclass(eq=False)
class Automaton:
    """States opened on demand and kept.

    Raises:
        ConfigError: the grammar says the same in two ways, so that a text would not determine its derivation.
    """

    grammar: Grammar
    _sentences: dict[State, tuple[Sentence, ...]] = field(default_factory=dict, repr=False)
    _pages: dict[tuple[State, Language], Page] = field(default_factory=dict, repr=False)
    _ladders: dict[State, list[float]] = field(default_factory=dict, repr=False)

    @property
    def start(self) -> State:
        return State(self.grammar.start)

    def sentences(self, state: State) -> tuple[Sentence, ...]:
        """All sentences that can follow in ``state``; their chances sum to 1."""
        found = self._sentences.get(state)
        if found is None:
            found = self._sentences[state] = self._open(state)
        return found

    def states(self) -> tuple[State, ...]:
        """All states that a story can reach, each before those it leads to; the last is DONE."""
        found: dict[str, dict[State, None]] = {scene: {} for scene in (*self.grammar.order, END)}
        found[self.grammar.start][self.start] = None
        for scene in self.grammar.order:
            for state in found[scene]:
                for sentence in self.sentences(state):
                    found[sentence.to.scene][sentence.to] = None
        return tuple(state for scene in found.values() for state in scene)

    def choose(self, state: State, u: float) -> Sentence:
        """The sentence on whose share of [0, 1) the number u falls."""
        ladder = self._ladders.get(state)
        if ladder is None:
            ladder = self._ladders[state] = list(accumulate(sentence.p for sentence in self.sentences(state)))
        return self.sentences(state)[bisect_right(ladder, u * ladder[-1], hi=len(ladder) - 1)]

    def page(self, state: State, lang: Language) -> Page:
        """The sorted sentences of a state, checked to be told apart."""
        found = self._pages.get((state, lang))
        if found is None:
            found = self._pages[state, lang] = self._sort(state, lang)
        return found

    def find(self, prefix: str, lang: Language) -> Place:
        """The place of a prefix.

        Raises:
            DataError: no story begins so; the message gives the first position that can't be.
        """
        state, at, logprob = self.start, 0, 0.0
        words: list[str] = []
        while True:
            page = self.page(state, lang)
            # No sentence begins another, so of those that sort before the rest only the last can be complete in it.
            i = bisect_right(page.texts, prefix[at:]) - 1
            if i >= 0 and prefix.startswith(page.texts[i], at):
                sentence = page.sentences[i]
                at += len(page.texts[i])
                logprob += log(sentence.p)
                words += sentence.words(lang)
                state = sentence.to
                continue
            rest = prefix[at:]
            low, high = _interval(page.texts, rest)
            if low == high and rest:
                raise _impossible(page, prefix, at)
            return Place(page, low, high, len(rest), logprob, tuple(words))

    def _open(self, state: State) -> tuple[Sentence, ...]:
        if state == DONE:
            return (Sentence(END, (), (), 1.0, DONE),)
        grammar = self.grammar
        told = dict(state.values)
        frames = grammar.scenes[state.scene]
        total = sum(frame.weight for frame in frames)
        found: list[Sentence] = []
        for frame in frames:
            alive = grammar.alive[frame.to]
            for p, values in grammar.fillings(frame, told):
                to = State(frame.to, tuple(sorted((slot, value) for slot, value in values.items() if slot in alive)))
                zh, en = (grammar.say(frame.pattern(lang), values, lang) for lang in LANGUAGES)
                found.append(Sentence(state.scene, zh, en, p * frame.weight / total, to))
        return tuple(found)

    def _sort(self, state: State, lang: Language) -> Page:
        lead = "" if state == self.start else SENTENCE_SPACE[lang]
        spoken = [sentence for sentence in self.sentences(state) if sentence.words(lang)]
        silent = [sentence for sentence in self.sentences(state) if not sentence.words(lang)]
        rows = sorted(((lead + sentence.text(lang), sentence) for sentence in spoken), key=lambda row: row[0])
        texts = [text for text, _ in rows]
        if twins := next((pair for pair in pairwise(texts) if pair[1].startswith(pair[0])), None):
            raise ConfigError(
                f"in a scene no {lang} sentence may begin another; scene {state.scene!r} has such a pair",
                value=twins,
                remedy="Tell them apart by a word, or give the whole sentence one frame",
            )
        if len(silent) > 1 or any(sentence.to != DONE for sentence in silent):
            raise ConfigError("a scene must have at most one end without words", value=state.scene)
        ends = [_ends(sentence.words(lang), lang, len(lead)) for _, sentence in rows]
        return Page(texts, [sentence for _, sentence in rows], lang, ends, fsum(sentence.p for sentence in silent))


def next_char(place: Place) -> dict[str, float]:
    """P(next character | prefix), the likeliest first, with END_OF_STORY where the story may be over."""
    page = place.page
    rows = range(place.low, place.high)
    return _share(place, rows, [page.texts[i][place.depth] for i in rows])


def next_word(place: Place) -> dict[str, float]:
    """P(next word | prefix), the likeliest first, with END_OF_STORY.

    A prefix that can be read as whole words is: after "There is a" the word "an" is out. Any other ends inside a word,
    or in the space before it, and that word is told whole.
    """
    page = place.page
    rows = range(place.low, place.high)
    whole = [i for i in rows if not place.depth or place.depth in page.ends[i]] or rows
    return _share(
        place, whole, [page.sentences[i].words(page.lang)[bisect_right(page.ends[i], place.depth)] for i in whole]
    )


def segment(place: Place) -> list[str]:
    """The words up to a place; one that the place cuts off ends there, read as in the likeliest sentence."""
    page = place.page
    if not place.depth:
        return list(place.words)
    best = max(range(place.low, place.high), key=lambda i: page.sentences[i].p)
    found = list(place.words)
    for word, end in zip(page.sentences[best].words(page.lang), page.ends[best], strict=True):
        cut = max(end - place.depth, 0)
        if cut < len(word):
            found.append(word[: len(word) - cut])
    return found


def _share(place: Place, rows: Sequence[int], keys: list[str]) -> dict[str, float]:
    page = place.page
    masses: dict[str, list[float]] = {}
    for i, key in zip(rows, keys, strict=True):
        masses.setdefault(key, []).append(page.sentences[i].p)
    if page.stop and not place.depth:
        masses[END_OF_STORY] = [page.stop]
    sums = {key: fsum(parts) for key, parts in masses.items()}
    total = fsum(sums.values())
    return {key: mass / total for key, mass in sorted(sums.items(), key=lambda item: (-item[1], item[0]))}


def _ends(words: tuple[str, ...], lang: Language, lead: int) -> list[int]:
    pieces = words if lang == "zh" else _spaced(words)
    return list(accumulate(map(len, pieces), initial=lead))[1:]


def _interval(texts: list[str], prefix: str) -> tuple[int, int]:
    low = bisect_left(texts, prefix)
    return low, bisect_left(texts, True, low, key=lambda text: not text.startswith(prefix))


def _impossible(page: Page, prefix: str, at: int) -> DataError:
    stop = at
    while _interval(page.texts, prefix[at : stop + 1])[0] < _interval(page.texts, prefix[at : stop + 1])[1]:
        stop += 1
    low, high = _interval(page.texts, prefix[at:stop])
    here = next_char(Place(page, low, high, stop - at, 0.0, ()))
    return DataError(
        f"a prefix must begin a story of fable; position {stop} can't be {prefix[stop]!r}",
        value=prefix,
        remedy=f"After {prefix[:stop][-12:]!r} there can be: {' '.join(list(here)[:8])}",
    )
