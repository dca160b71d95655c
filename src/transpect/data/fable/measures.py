"""How unpredictable fable is, exactly.

All sums run over the states of the automaton, not over stories. With π_k(s) the chance that sentence k is chosen in
state s, and p(x | s) the chance of sentence x there,

    H(story) = Σ_k Σ_s π_k(s) · H(s),    H(s) = −Σ_x p(x | s) ln p(x | s),

where the choice to end the story counts as one x. The sum is over derivations; it is the entropy of the *strings*
because each text has one derivation, which ``Automaton.page`` checks state by state. That holds in both languages, so
the Chinese and the English of a story have the same entropy.

**The floor.** A language model reads a story as tokens t_1 … t_n and then the end of the story, t_{n+1}. Its mean loss
is Σ −ln q(t_i | t_<i) / Σ (n + 1), summed over stories; the first token is predicted from a start mark, and the end is
predicted too. By the chain rule the numerator's expectation is at least H(story), whatever the tokenizer, if a story
and its tokens determine each other. So no model does better than

    floor = H(story) / (E[n] + 1)    nats per token.

Source: C. E. Shannon, "A Mathematical Theory of Communication" (1948), sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, fsum, log, sqrt

from transpect.base.errors import DataError
from transpect.data.fable.automaton import DONE, SENTENCE_SPACE, Automaton, Sentence, State
from transpect.data.fable.grammar import Language


@dataclass(frozen=True, slots=True)
class SentenceMeasure:
    """What is known of one place in the story: sentence ``position`` (from 1) when it is chosen in ``scene``."""

    position: int
    scene: str
    reach: float  # chance that a story makes this choice
    nats: float  # entropy of the choice, given the text before it; includes the choice to stop
    sentences: float  # chance that a sentence follows at all
    words: float  # expected words of that sentence, 0 where the story stops
    chars: float  # expected characters, the space that parts it from the sentence before among them


@dataclass(frozen=True, slots=True)
class Measures:
    """Exact numbers of the world in one language. Nats are per story, or per token where the name says so."""

    lang: Language
    entropy: float  # nats per story
    chars: float  # expected characters per story, spaces and punctuation counted
    words: float  # expected words per story, punctuation counted
    sentences: float  # expected sentences per story
    longest: int  # characters of the longest story there is: a context of ``longest + 1`` holds any story and its end
    by_sentence: tuple[SentenceMeasure, ...]

    @property
    def floor_per_char(self) -> float:
        """The least loss of a model over characters, H / (E[characters] + 1), in nats."""
        return self.entropy / (self.chars + 1)

    @property
    def floor_per_word(self) -> float:
        """The least loss of a model over words, H / (E[words] + 1), in nats."""
        return self.entropy / (self.words + 1)

    @property
    def perplexity_per_char(self) -> float:
        """exp(floor_per_char)."""
        return exp(self.floor_per_char)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A sampled value and its standard error."""

    value: float
    stderr: float


@cache
def measure(automaton: Automaton, lang: Language) -> Measures:
    """All exact numbers in one pass over the automaton."""
    rows = tuple(
        _row(automaton, lang, position, scene, reached)
        for position, reached in enumerate(reach(automaton), start=1)
        for scene in dict.fromkeys(state.scene for state in reached)
    )
    return Measures(
        lang,
        entropy=fsum(row.reach * row.nats for row in rows),
        chars=fsum(row.reach * row.chars for row in rows),
        words=fsum(row.reach * row.words for row in rows),
        sentences=fsum(row.reach * row.sentences for row in rows),
        longest=_longest(automaton, lang),
        by_sentence=rows,
    )


@cache
def reach(automaton: Automaton) -> list[dict[State, float]]:
    """π: for each sentence of a story, the chance of each state it is chosen in. Stories that are over drop out."""
    layers: list[dict[State, float]] = []
    layer = {automaton.start: 1.0}
    while layer:
        layers.append(layer)
        after: dict[State, float] = {}
        for state, chance in layer.items():
            for sentence in automaton.sentences(state):
                if sentence.to != DONE:
                    after[sentence.to] = after.get(sentence.to, 0.0) + chance * sentence.p
        layer = after
    return layers


@cache
def word_counts(automaton: Automaton, lang: Language) -> dict[str, float]:
    """Word -> how often a story has it on average, the commonest first."""
    parts: dict[str, list[float]] = {}
    for reached in reach(automaton):
        for state, chance in reached.items():
            for sentence in automaton.sentences(state):
                for word in sentence.words(lang):
                    parts.setdefault(word, []).append(chance * sentence.p)
    counts = {word: fsum(chances) for word, chances in parts.items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def story_logprob(automaton: Automaton, text: str, lang: Language) -> float:
    """ln P(the story is exactly ``text``), in nats; −∞ for what is no story."""
    try:
        place = automaton.find(text, lang)
    except DataError:
        return float("-inf")
    if place.depth or not place.page.stop:
        return float("-inf")
    return place.logprob + log(place.page.stop)


def optimal_loss(
    automaton: Automaton, texts: Iterable[str], lang: Language, tokenize: Callable[[str], Sequence[object]]
) -> float:
    """The loss of the true distribution on these very stories, Σ −ln P(story) / Σ (tokens + 1), in nats per token.

    Raises:
        DataError: there is no story, or one that the world can't tell.
    """
    losses: list[float] = []
    tokens = 0
    for i, text in enumerate(texts):
        loss = -story_logprob(automaton, text, lang)
        if loss == float("inf"):
            raise DataError(f"text {i} must be a whole story of fable", value=text)
        losses.append(loss)
        tokens += len(tokenize(text)) + 1
    if not tokens:
        raise DataError("the optimal loss must have at least one story")
    return fsum(losses) / tokens


def floor_per_token(entropy: float, lengths: Sequence[int]) -> Estimate:
    """floor = H / (m + 1), stderr ≈ floor · s / (√N · (m + 1)); m, s: mean and deviation of N sampled token counts.

    Raises:
        DataError: fewer than 2 counts, from which no deviation can be told.
    """
    n = len(lengths)
    if n < 2:
        raise DataError("the floor per token must be estimated from at least 2 stories", value=n)
    mean = sum(lengths) / n
    deviation = sqrt(fsum((length - mean) ** 2 for length in lengths) / (n - 1))
    floor = entropy / (mean + 1)
    return Estimate(floor, floor * deviation / (sqrt(n) * (mean + 1)))


def _longest(automaton: Automaton, lang: Language) -> int:
    longest = {DONE: 0}
    for state in reversed(automaton.states()):
        if state != DONE:
            page = automaton.page(state, lang)
            spoken = zip(page.texts, page.sentences, strict=True)
            longest[state] = max((len(text) + longest[sentence.to] for text, sentence in spoken), default=0)
    return longest[automaton.start]


def _row(
    automaton: Automaton, lang: Language, position: int, scene: str, reached: Mapping[State, float]
) -> SentenceMeasure:
    members = [(state, chance) for state, chance in reached.items() if state.scene == scene]
    total = fsum(chance for _, chance in members)
    space = 0 if position == 1 else len(SENTENCE_SPACE[lang])

    def average(of: Callable[[Sentence], float]) -> float:
        terms = (chance * s.p * of(s) for state, chance in members for s in automaton.sentences(state))
        return fsum(terms) / total

    return SentenceMeasure(
        position,
        scene,
        reach=total,
        nats=average(lambda s: -log(s.p)),
        sentences=average(lambda s: 1 if s.words(lang) else 0),
        words=average(lambda s: len(s.words(lang))),
        chars=average(lambda s: len(s.text(lang)) + space if s.words(lang) else 0),
    )
