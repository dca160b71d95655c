"""What a beam search has found, how it is ranked, and whether anything better can still come. No tensors, no model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from transpect.decode.alternatives import Top

if TYPE_CHECKING:
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Event
    from transpect.decode.row import Row

EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True)
class Hypothesis:
    """A whole output.

    Attributes:
        score: what it is ranked by.
        tokens: its ids, a final EOS included.
        logprobs: of each token, by the model itself.
        tops: the most probable tokens in the place of each.
    """

    score: float
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    tops: tuple[Top, ...]


@dataclass(frozen=True)
class Ranking:
    """score = Σ ln p(token) / length ** length_penalty, where length counts the tokens of the output, EOS included.

    Attributes:
        length_penalty: as in the formula.
        early_stopping: see `BeamSearch`.
        longest: the most new tokens that an output may have.
        begun: how many tokens an output has before its first new one, see `Request`.
        rises: whether a sum may grow, because something is added to log-probabilities.
    """

    length_penalty: float
    early_stopping: EarlyStopping
    longest: int
    begun: int = 0
    rises: bool = False

    def score(self, total: float, length: int) -> float:
        """Of ``length`` new tokens whose log-probabilities sum to ``total``."""
        return float(total / (self.begun + length) ** self.length_penalty)

    def bound(self, total: float, length: int) -> float:
        """What no continuation of ``length`` tokens with this sum scores above.

        Sums only fall, and total / l ** length_penalty is monotone in l: the highest score is that of the next length
        or of the longest.
        """
        if self.rises:
            return math.inf
        return max(self.score(total, length + 1), self.score(total, self.longest))


class Hypotheses:
    """The best outputs so far, of equal ones the earlier.

    Args:
        ranking: of their scores.
        size: how many are kept.
        wanted: how many of them will be given out, at most ``size``.
    """

    def __init__(self, ranking: Ranking, size: int, wanted: int) -> None:
        self._ranking, self._size, self._wanted = ranking, size, wanted
        self._found: list[Hypothesis] = []

    def __iter__(self) -> Iterator[Hypothesis]:
        """From the best to the worst."""
        return iter(self._found)

    def add(
        self, total: float, tokens: tuple[int, ...], logprobs: tuple[float, ...], tops: tuple[Top, ...] = ()
    ) -> None:
        """Take an output whose log-probabilities sum to ``total``, if it is among the best; no ``tops`` are none of any
        token."""
        tops = tops or ((),) * len(tokens)
        self._found.append(Hypothesis(self._ranking.score(total, len(tokens)), tokens, logprobs, tops))
        self._found.sort(key=lambda one: -one.score)  # stable
        del self._found[self._size :]

    def complete(self, total: float | None, length: int) -> bool:
        """Whether the search is over.

        Args:
            total: the highest sum of what still runs; None where nothing does.
            length: how many new tokens it has.
        """
        if total is None:
            return True
        ranking, found = self._ranking, self._found
        if ranking.early_stopping == "never":
            return len(found) >= self._wanted and ranking.bound(total, length) <= found[self._wanted - 1].score
        if len(found) < self._size:
            return False
        return ranking.early_stopping is True or ranking.score(total, length) <= found[-1].score


@dataclass(frozen=True)
class Beams:
    """What the searches of a batch share.

    Attributes:
        size: beams of a group.
        length_penalty, early_stopping, renormalize_logits: see `BeamSearch`.
        groups: how many groups.
        diversity_penalty: see `DiverseBeamSearch`.
    """

    size: int
    length_penalty: float
    early_stopping: EarlyStopping
    renormalize_logits: bool = False
    groups: int = 1
    diversity_penalty: float = 0.0

    def hypotheses(self, row: Row) -> Hypotheses:
        """Where a group of beams of a request puts what it finds."""
        params = row.params
        ranking = Ranking(
            self.length_penalty,
            self.early_stopping,
            longest=params.max_new_tokens,
            begun=row.request.begun,
            rises=not self.renormalize_logits and _may_rise(params),
        )
        return Hypotheses(ranking, self.size, min(params.n, self.size))


def outputs(row: Row, found: Iterable[Hypothesis]) -> Iterator[Event]:
    """The outputs that a request asks for of those that its beams have found, best first, each token by token."""
    ranked = sorted(found, key=lambda one: -one.score)
    for choice, one in enumerate(ranked[: row.params.n]):
        own = row.twin(choice)
        events = [own.take(*taken) for taken in zip(one.tokens, one.logprobs, one.tops, strict=True)]
        yield from events[:-1]
        yield replace(events[-1], score=one.score)


def _may_rise(params: GenerationParams) -> bool:
    """Whether a filter may bring a log-probability above 0."""
    biases = [bias for _, bias in (*params.logit_bias, *params.sequence_bias)]
    _, factor = params.exponential_decay_length_penalty or (0, 1.0)
    return any(bias > 0 for bias in biases) or factor > 1 or min(params.presence_penalty, params.frequency_penalty) < 0
