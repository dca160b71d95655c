"""Who reads texts whole for a head: the model in padded rows, or an encoder program (`transpect.runtime`).

Axes: B batch, T position, D model, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transpect.base.errors import ConfigError
from transpect.core import NO_SOURCE, Pooled, SequenceClass, Tags, Transformer
from transpect.decode.grouping import costs_of, groups
from transpect.decode.program_steps import LARGE_ENOUGH, Runtime, known_runtime, weights_of

if TYPE_CHECKING:
    from transpect.runtime.encoder import EncoderProgram

__all__ = ["Reader", "Text", "reader_of"]

Text = tuple[Sequence[int], Sequence[int]]
"""Ids of a text or a pair of texts with the special tokens around them, and the segment of each; without segments all
tokens are of type 0."""


class Reader(Protocol):
    """Reads texts of at least one token each."""

    def passes(self, lengths: Sequence[int]) -> list[list[int]]:
        """Which texts of a batch, by their indices, are best read together."""

    def said(self, texts: Sequence[Text]) -> Tensor:
        """What the head says of them: [B, …], or [B, T, …] with anything behind the end of a text."""

    def said_at(self, text: Text, places: Sequence[int]) -> Tensor:
        """What the head says at these tokens of a text, [places, …]."""


@contextmanager
def reader_of(
    model: Transformer, runtime: str, longest: int, start: Callable[[], int] | None = None
) -> Iterator[Reader]:
    """The reader for a model as it is now.

    Args:
        model: with a head that reads whole texts.
        runtime: ``torch``, ``program``, or ``auto``, which takes a program where there is one for a model that is not
            small.
        longest: tokens of the longest text.
        start: see `transpect.decode.encoder.classes`.

    Raises:
        ConfigError: ``program``, where there is none: the reason is told.
    """
    chosen: Runtime = known_runtime(runtime)
    if chosen == "torch" or (chosen == "auto" and weights_of(model.modules()) < LARGE_ENOUGH):
        yield _Modules(model, start)
        return
    from transpect.runtime.encoder import EncoderLoan  # numba takes half a second

    try:
        loan = EncoderLoan(model, longest)
    except ConfigError:
        if chosen == "program":
            raise
        yield _Modules(model, start)
        return
    yield _ByProgram(model, loan.program)
    loan.give_back()


class _Modules:
    """The model's own modules, on texts of about one length at a time, padded on the right."""

    def __init__(self, model: Transformer, start: Callable[[], int] | None) -> None:
        self._model, self._start, self._costs = model, start, costs_of(model)

    def passes(self, lengths: Sequence[int]) -> list[list[int]]:
        return groups(lengths, self._costs)

    def said(self, texts: Sequence[Text]) -> Tensor:
        model, device = self._model, self._model.device
        lengths = [len(ids) for ids, _ in texts]
        longest = max(lengths)
        ids = _padded([ids for ids, _ in texts], longest, device)
        told = model.config.embedding.token_types > 1
        types = _padded([segments for _, segments in texts], longest, device) if told else None
        # without padding no mask is needed
        tags = Tags.dense(*ids.shape, device=device)
        if min(lengths) < longest:
            tags = Tags.padded(tags.position < torch.tensor(lengths, device=device)[:, None])
        source = NO_SOURCE
        if model.config.kind == "encoder-decoder":
            assert self._start is not None
            source = model.encode(ids, tags=tags, packed=True)
            ids = torch.cat([ids.new_full((len(ids), 1), self._start()), ids[:, :-1]], 1)
        out: Tensor = model(ids, tags=tags, token_types=types, source=source, packed=True)
        return out

    def said_at(self, text: Text, places: Sequence[int]) -> Tensor:
        return self.said([text])[0, list(places)]


class _ByProgram:
    """A program for the tower. Heads are the model's modules, which are given single tokens, or what is pooled."""

    def __init__(self, model: Transformer, program: EncoderProgram) -> None:
        self._model, self._program = model, program

    def passes(self, lengths: Sequence[int]) -> list[list[int]]:
        return [list(range(len(lengths)))]

    def said(self, texts: Sequence[Text]) -> Tensor:
        head = self._model.config.head
        if isinstance(head, Pooled | SequenceClass):
            return self._headed(self._program.vectors(self._told(texts), head.pool)[:, None])
        tokens = self._headed(self._program.tokens_of(self._told(texts))[:, None])[:, 0]
        return pad_sequence(list(tokens.split_with_sizes([len(ids) for ids, _ in texts])), batch_first=True)

    def said_at(self, text: Text, places: Sequence[int]) -> Tensor:
        tokens = self._program.tokens_of(self._told([text]))[list(places)]
        return self._headed(tokens[:, None])[:, 0]

    def _told(self, texts: Sequence[Text]) -> Sequence[Text]:
        """Without segments where the model knows none."""
        return texts if self._model.config.embedding.token_types > 1 else [(ids, ()) for ids, _ in texts]

    def _headed(self, hidden: Tensor) -> Tensor:
        """What the head says of single vectors [N, 1, D]: pooled, one is itself."""
        table = self._model.token.weight
        out: Tensor = self._model.head(hidden.to(table.dtype), Tags.dense(len(hidden), 1), table)
        return out


def _padded(rows: Sequence[Sequence[int]], length: int, device: torch.device) -> Tensor:
    """[B, T], with 0 on the right."""
    return torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], dtype=torch.int64, device=device)
