"""Drafts from what was there before: after the last n tokens comes what came after them the last time.

No second model is asked. It pays where outputs repeat their input: summaries, edits, code, translations with names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from transpect.decode.checks import check
from transpect.decode.filters.options import is_whole
from transpect.decode.strategies.following import follow
from transpect.decode.strategies.speculative import Drafter, Drafts, Speculative, after, at_least_one

if TYPE_CHECKING:
    from transpect.core import ModelConfig
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps
    from transpect.decode.trace import Trace

LONGEST, SHORTEST = 3, 2
"""Of the runs that `Spare` looks for."""

_BORDER = -1
"""Between a source and the prompt: no draft reaches over it."""


@dataclass(frozen=True)
class PromptLookup(Speculative):
    """Prompt look-up decoding (Saxena 2023): tokens are guessed, and those that the model would have chosen stay, so a
    seed gives the same tokens as `Sample`.

    A row drafts twice as many tokens after a draft that stayed whole, and one more than stayed after another.

    Attributes:
        prompt_lookup_num_tokens: how many tokens to draft at most; 0 never drafts (left out, `Sample` may).
        max_matching_ngram_size: how many of the last tokens to look for at first; then fewer, down to one.
    """

    prompt_lookup_num_tokens: int = 10
    max_matching_ngram_size: int = 3

    trigger: ClassVar[str] = "prompt_lookup_num_tokens"
    resumes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        most = self.prompt_lookup_num_tokens
        check(is_whole(most), "prompt_lookup_num_tokens must be a whole number from 0", most, "0 never drafts a token.")
        at_least_one("max_matching_ngram_size", self.max_matching_ngram_size)

    @property
    def takes_back(self) -> bool:
        """See `Strategy.takes_back`."""
        return self.prompt_lookup_num_tokens > 0

    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """See `Strategy.check`."""

    def drafter(self, steps: Steps, rows: Sequence[Row]) -> Drafter:
        """See `Speculative.drafter`."""
        return Lookup(self, rows)

    def decode(self, steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
        """See `Strategy.decode`."""
        if not self.prompt_lookup_num_tokens:
            return follow(steps, rows, steps.prefill())
        return super().decode(steps, rows)


class Continuations:
    """What came after each run of up to n tokens the last time.

    Args:
        n: the longest run to look for.
        ids: the first tokens.
    """

    def __init__(self, n: int, ids: Iterable[int] = ()) -> None:
        self.n, self.ids = n, list[int]()
        self._after: dict[tuple[int, ...], int] = {}
        self.extend(ids)

    def extend(self, ids: Iterable[int]) -> None:
        """More tokens. O(n) each."""
        for token in ids:
            here = len(self.ids)
            for size in range(1, min(self.n, here) + 1):
                self._after[tuple(self.ids[here - size :])] = here
            self.ids.append(token)

    def draft(self, most: int, shortest: int = 1) -> list[int]:
        """What came after the longest run of last tokens that has been there before, if it has ``shortest``; where that
        reaches the end it goes on with the draft itself, so a loop is drafted round and round."""
        for size in range(min(self.n, len(self.ids)), shortest - 1, -1):
            start = self._after.get(tuple(self.ids[-size:]))
            if start is None:
                continue
            drafted = self.ids[start : start + most]
            period = len(self.ids) - start
            while len(drafted) < most:
                drafted.append(drafted[len(drafted) - period])
            return drafted[: drafted.index(_BORDER)] if _BORDER in drafted else drafted
        return []


class Past:
    """What a row has read and written, to draft from.

    Args:
        n: the longest run to look for.
        row: whose.
    """

    def __init__(self, n: int, row: Row) -> None:
        trace = row.trace
        self._seen = Continuations(n, (*(row.request.source or ()), _BORDER, *trace.prompt, *trace.written))
        self._known = len(trace.written)

    def draft(self, row: Row, most: int, shortest: int = 1) -> list[int]:
        """Up to so many tokens that may follow, as far as the row's constraint lets them, and no further than an end.
        See `Continuations.draft`."""
        if most <= 0:
            return []
        written = row.trace.written
        self._seen.extend(written[self._known :])
        self._known = len(written)
        return _allowed(row, self._seen.draft(most, shortest))


class Lookup:
    """See `Drafter`."""

    def __init__(self, options: PromptLookup, rows: Sequence[Row]) -> None:
        self._most = options.prompt_lookup_num_tokens
        self._pasts = [Past(options.max_matching_ngram_size, row) for row in rows]
        self._pace = [self._most for _ in rows]
        self._drafted = [0 for _ in rows]

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Drafts:
        """See `Drafter.draft`."""
        limits = map(min, most, self._pace)
        tokens = [past.draft(row, limit) for past, row, limit in zip(self._pasts, rows, limits, strict=True)]
        self._drafted = list(map(len, tokens))
        return Drafts(tokens)

    def settle(self, accepted: Sequence[int]) -> None:
        """See `Drafter.settle`."""
        for place, (count, drafted) in enumerate(zip(accepted, self._drafted, strict=True)):
            if drafted:
                self._pace[place] = min(self._most, 2 * self._pace[place] if count == drafted else count + 1)

    def select(self, rows: Sequence[int]) -> None:
        """See `Drafter.select`."""
        self._pasts = [self._pasts[i] for i in rows]
        self._pace, self._drafted = [self._pace[i] for i in rows], [self._drafted[i] for i in rows]


class Spare:
    """Drafts that fill the rows a pass reads at the price of one (see `Steps.spare`, and `Drafter`).

    A row drafts after two tokens that have been there before, and nothing else: one wrong guess in two costs less than
    the right one saves.

    Args:
        spare: how many rows of the batch and their drafts together.
        rows: those of the batch.
    """

    def __init__(self, spare: int, rows: Sequence[Row]) -> None:
        self._spare, self._pasts = spare, [Past(LONGEST, row) for row in rows]

    def draft(self, rows: Sequence[Row], most: Sequence[int]) -> Drafts:
        """See `Drafter.draft`."""
        each = self._spare // len(rows) - 1
        pairs = zip(self._pasts, rows, most, strict=True)
        return Drafts([past.draft(row, min(limit, each), SHORTEST) for past, row, limit in pairs])

    def settle(self, accepted: Sequence[int]) -> None:
        """See `Drafter.settle`. One draft says little of the next."""

    def select(self, rows: Sequence[int]) -> None:
        """See `Drafter.select`."""
        self._pasts = [self._pasts[i] for i in rows]


def _allowed(row: Row, draft: list[int]) -> list[int]:
    """As far as the row's constraint lets it, and no further than an end."""
    past: Trace | None = row.trace
    for place, token in enumerate(draft):
        if past is None:
            return draft[:place]
        mask = past.constraint.mask(past.written)
        if mask is not None and not bool(mask[token]):
            return draft[:place]
        past = after(row, past, token)
    return draft
