"""Ways to spoil a text, for `denoising` to mend (BART: Lewis et al. 2020, §2.2). A list of them is applied in order."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from transpect.base.checks import above
from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.data.draws import shuffled
from transpect.data.ragged import Ints
from transpect.data.spans import lengths_of, poisson, rounded, scattered


@dataclass(frozen=True, eq=False)
class Passage:
    """Tokens that are being spoiled.

    Attributes:
        ids: [n].
        starts: [n], 1 where a sentence starts, else 0.
        mask_id: what stands for something hidden.
        room: how many tokens there may be.
    """

    ids: Ints
    starts: Ints
    mask_id: int
    room: int

    def part(self, which: Ints) -> Passage:
        """Some of the tokens, in another order or not."""
        return replace(self, ids=self.ids[which], starts=self.starts[which])


class Noise(Variant):
    """One way; a kind owns its options."""

    @abstractmethod
    def spoil(self, passage: Passage, rng: np.random.Generator) -> Passage:
        """The passage as it is to be read."""


@final
@dataclass(frozen=True)
class TextInfilling(Noise, kind="text_infilling"):
    """Spans become one mask each; one without length puts a mask between two tokens, as far as there is room.

    ⌊rate·n⌋ or ⌈rate·n⌉ of n tokens are in spans (rate·n on average); lengths are drawn from Poisson(``mean``) until
    they add up, the last one cut. Every arrangement of the spans is as likely as any other.

    Attributes:
        rate: the share of tokens in spans.
        mean: λ.
    """

    rate: float = 0.3
    mean: float = 3.0

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        above("mean", self.mean, 0)

    def spoil(self, passage: Passage, rng: np.random.Generator) -> Passage:
        n = len(passage.ids)
        lengths = lengths_of(rounded(self.rate * n, rng), poisson(self.mean), rng)
        over = n - int(lengths.sum()) + len(lengths) - passage.room
        if over > 0:
            lengths = np.delete(lengths, np.flatnonzero(lengths == 0)[:over])
        starts = scattered(lengths, n, rng)
        inside = np.repeat(starts, lengths) + _counted(lengths)
        kept = np.delete(np.arange(n), inside)
        # a mask stands where its span began: after every kept token before that, and after the spans before
        at = np.searchsorted(kept, starts)
        sentence = np.array([passage.starts[s : s + size].any() for s, size in zip(starts, lengths, strict=True)], bool)
        return replace(
            passage,
            ids=np.insert(passage.ids[kept], at, passage.mask_id),
            starts=np.insert(passage.starts[kept], at, sentence),
        )


@final
@dataclass(frozen=True)
class TokenMasking(Noise, kind="token_masking"):
    """Each token becomes mask with chance ``rate``."""

    rate: float = 0.15

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def spoil(self, passage: Passage, rng: np.random.Generator) -> Passage:
        hidden = rng.random(len(passage.ids)) < self.rate
        return replace(passage, ids=np.where(hidden, passage.mask_id, passage.ids))


@final
@dataclass(frozen=True)
class TokenDeletion(Noise, kind="token_deletion"):
    """Each token goes with chance ``rate``, and nothing says where."""

    rate: float = 0.15

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def spoil(self, passage: Passage, rng: np.random.Generator) -> Passage:
        return passage.part(np.flatnonzero(rng.random(len(passage.ids)) >= self.rate))


@final
@dataclass(frozen=True)
class SentencePermutation(Noise, kind="sentence_permutation"):
    """Sentences come in random order (see `sentence_starts`); so do the documents of a row."""

    def spoil(self, passage: Passage, rng: np.random.Generator) -> Passage:
        number = np.cumsum(passage.starts)
        number -= number[:1]  # a piece may begin inside a sentence
        order = shuffled(int(number[-1]) + 1 if len(number) else 0, rng)
        place = np.argsort(order)
        return passage.part(np.argsort(place[number], kind="stable"))


@final
@dataclass(frozen=True)
class Rotation(Noise, kind="rotation"):
    """With chance ``rate`` the text begins with a token chosen by lot, and what stood before that comes last."""

    rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ConfigError("rate must be above 0 and at most 1", value=self.rate)

    def spoil(self, passage: Passage, rng: np.random.Generator) -> Passage:
        turns, n = rng.random() < self.rate, len(passage.ids)
        first = int(rng.random() * n) if turns else 0
        return passage.part(np.roll(np.arange(n), -first))


def _check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise ConfigError("rate must be between 0 and 1", value=rate)


def _counted(lengths: Ints) -> Ints:
    """0 … l−1 for each length l, end to end."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
