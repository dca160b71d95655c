"""Predict spans that a source leaves out (T5: Raffel et al. 2020, §3.1.4 and §3.3.4).

Of ``Thank you for inviting me to your party last week`` the encoder reads
``Thank you <extra_id_0> me to your party <extra_id_1> week eos``, and the decoder predicts
``<extra_id_0> for inviting <extra_id_1> last eos``. A row of n tokens has

    noise = round(rate · n), spans = round(noise / mean)

so its source has n − noise + spans + |frame| tokens, and its target noise + spans + 1. Rows are as long as a source of
``seq_len`` tokens allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, final

import numpy as np

from transpect.base.checks import at_least
from transpect.base.errors import ConfigError
from transpect.data.collating import Example
from transpect.data.documents import Document, Segmenter
from transpect.data.draws import draws, shuffled
from transpect.data.objectives.base import Encoded, Key, Needs, Objective, Task
from transpect.data.objectives.decoder_start import (
    Start,
    check_start,
    decoder_generation,
    decoder_start_and_end,
    teacher_forced,
    written_after,
)
from transpect.data.objectives.seq2seq import Seq2Seq, source_frame
from transpect.data.objectives.tokens import TakesTokens
from transpect.data.packing import Piece, Plan, alone, cut, joined
from transpect.data.ragged import Ints, Ragged
from transpect.data.spans import composition
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True)
class Span(Objective, kind="span"):
    """Span corruption.

    Kept and hidden stretches take turns, a kept one first; of both kinds there are as many as spans, and every way to
    part the kept and the hidden tokens into them is as likely as any other. Spans are drawn anew in each epoch, from
    the seed, the epoch and the row.

    The sentinels are the tokenizer's ``<extra_id_0>``, ``<extra_id_1>``, … A tokenizer that a recipe trains gets as
    many as a row needs.

    Attributes:
        rate: the share of hidden tokens.
        mean: how many tokens a hidden span has on average.
        join: documents stand end to end, and that stream is cut into rows of one length, as T5 was trained; False is
            rows of one document each, where a long one is cut.
        start: see `decoder_start_and_end`.
    """

    rate: float = 0.15
    mean: float = 3.0
    join: bool = True
    start: Start | None = None

    needs: ClassVar[Needs] = Needs(Seq2Seq.needs.model, Seq2Seq.needs.roles, looks_back=True, spells=False)

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError("rate must be between 0 and 1", value=self.rate, remedy="Take 0.15.")
        at_least("mean", self.mean, 1)
        check_start(self.start)

    @property
    def separates(self) -> bool:
        return False

    def special_tokens(self, seq_len: int) -> tuple[str, ...]:
        return tuple(map(sentinel, range(self.counts(self.body(seq_len, frame=1))[1])))

    def counts(self, n: int) -> tuple[int, int]:
        """How many of n tokens are hidden, at least one, and in how many spans. Of two or more one is kept."""
        noise = min(max(round(n * self.rate), 1), max(n - 1, 1))
        spans = max(round(noise / self.mean), 1)
        return noise, min(spans, noise, max(n - noise, 1))

    def body(self, seq_len: int, frame: int) -> int:
        """The longest row whose source, with ``frame`` tokens around it, has at most ``seq_len`` tokens."""

        def source(n: int) -> int:
            noise, spans = self.counts(n)
            return n - noise + spans + frame

        n = 1
        while source(n + 1) <= seq_len:
            n += 1
        return n

    def begun(self, generation: Callable[[], Mapping[str, Any]]) -> Span:
        return self if self.start else replace(self, start=written_after(generation()))

    def build(self, tokenizer: Tokenizer, seq_len: int) -> SpanTask:
        frame = len(source_frame(tokenizer)) if tokenizer.eos_id is not None else 1
        self._check_tokenizer(tokenizer, seq_len, least=2 + frame)
        noise, spans = self.counts(self.body(seq_len, frame))
        longest = noise + spans + len(self.start or (1,))
        if longest > seq_len:
            raise ConfigError(
                f"hidden spans and their sentinels must fit into seq_len = {seq_len} tokens",
                value=longest,
                remedy="Lower data.objective.rate, or raise data.objective.mean.",
            )
        found = sentinels(tokenizer)
        if len(found) < spans:
            raise ConfigError(
                f"rows of {seq_len} tokens need the sentinels {sentinel(0)} … {sentinel(spans - 1)}",
                value=f"{len(found)} in the tokenizer",
                remedy="Train a tokenizer for it (tokenizer.kind), lower data.seq_len, or raise data.objective.mean.",
            )
        return SpanTask(self, tokenizer, seq_len, found)

    def generation(self, tokenizer: Tokenizer) -> dict[str, int]:
        return decoder_generation(tokenizer, self.start)


def sentinel(number: int) -> str:
    """The token that stands for a hidden span."""
    return f"<extra_id_{number}>"


def sentinels(tokenizer: Tokenizer) -> Ints:
    """The ids of a tokenizer's sentinels, from number 0 on."""
    found: list[int] = []
    while (token_id := tokenizer.token_to_id(sentinel(len(found)))) is not None:
        found.append(token_id)
    return np.array(found, np.int64)


@final
class SpanTask(Task, TakesTokens):
    """Rows of pieces; a document is held as its tokens."""

    def __init__(self, objective: Span, tokenizer: Tokenizer, seq_len: int, sentinels: Ints) -> None:
        super().__init__(tokenizer, None)
        self._objective, self._tokenizer, self._sentinels = objective, tokenizer, sentinels
        self._start, self._end = decoder_start_and_end(tokenizer, objective.start)
        self._frame: Final = source_frame(tokenizer)
        self._body = objective.body(seq_len, len(self._frame))

    def encode_batch(self, documents: Sequence[Document], segmenter: Segmenter | None) -> Encoded:
        texts = [document.text for document in documents]
        rows = self._tokenizer.encode_batch(texts, parse_special=False)
        return Encoded((Ragged.of(rows),), sum(map(len, texts)))

    def encode_tokens(self, rows: Ragged, characters: int) -> Encoded:
        return Encoded((rows,), characters)

    def plan(self, encoded: Encoded, generator: np.random.Generator | None) -> Plan:
        return plan_rows(encoded.streams[0].lengths, self._body, generator, join=self._objective.join)

    def example(self, encoded: Encoded, pieces: Sequence[Piece], key: Key) -> Example:
        rng = draws("span", *key)
        stream = encoded.streams[0]
        tokens = np.concatenate([stream.part(*piece) for piece in pieces])
        noise, spans = self._objective.counts(len(tokens))
        hidden = composition(noise, spans, rng)
        kept = composition(len(tokens) - noise, spans, rng)
        ends = np.cumsum(np.stack([kept, hidden], 1).ravel())[:-1]
        parts = np.split(tokens, ends)
        marks = self._sentinels[:spans, None]
        source = np.concatenate([part for pair in zip(parts[::2], marks, strict=True) for part in pair])
        target = np.concatenate([part for pair in zip(marks, parts[1::2], strict=True) for part in pair])
        ids, labels = teacher_forced(self._start, target, self._end)
        return Example(
            ids=ids,
            labels=labels,
            position=np.arange(len(ids)),
            segment=np.zeros(len(ids), np.int64),
            source=np.array(self._frame.around(source.tolist()), np.int64),
        )


def plan_rows(lengths: Ints, capacity: int, generator: np.random.Generator | None, *, join: bool) -> Plan:
    """Rows of at most ``capacity`` tokens: of all documents end to end, or of one document each."""
    if join:
        order = np.arange(len(lengths)) if generator is None else shuffled(len(lengths), generator)
        plan = joined(lengths, order, capacity)
        return plan if generator is None else plan.reordered(shuffled(len(plan), generator))
    pieces = cut(lengths, capacity)
    return alone(pieces if generator is None else pieces[shuffled(len(pieces), generator)])
