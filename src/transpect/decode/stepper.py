"""A batch of sequences on its way through a model: feed tokens, get the logits of what comes next.

Axes: B batch, T query, S source, D model, V vocabulary.

This is all that a strategy of decoding knows of a model: `prefill` once, `advance` by a token a row, `select` rows.
Prompts of different lengths are padded on the left; the tags say which columns are real, so the padding is not seen and
takes no position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from transpect.cache import DenseCache, SlidingCache, SumsCache, check_memory
from transpect.core import NO_SOURCE, StackConfig, Tags, Transformer
from transpect.decode.batching import batched, check_writes, evaluating


class Steps(Protocol):
    """What strategies decode from: a model with its cache, or a table of probabilities."""

    @property
    def vocab_size(self) -> int:
        """V."""

    @property
    def device(self) -> torch.device:
        """Where the logits are."""

    def prefill(self) -> Tensor:
        """Read the prompts; logits [B, V] of the token after each. Called once, before all else."""

    def advance(self, token: Tensor) -> Tensor:
        """Read one more token a row [B]; logits [B, V] of the one after it."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order; a row may be chosen more than once or not at all."""


class Stepper:
    """A Transformer with a cache: of keys and values of all tokens or of the last ones, or of sums over them where its
    self-attention needs no more.

    Args:
        model: a decoder or an encoder–decoder with a language-model head. Its training mode is left as it is.
        prompts: ids of each row that the last tower begins with, at least one.
        horizons: how long each row will become, prompt and new tokens together (see `Tags.horizon`).
        sources: for an encoder–decoder, ids of each row for the encoder.
        prefill_chunk: read prompts in pieces of so many columns, which bounds memory; None reads them at once. A
            prefix that sees itself both ways is always one piece. Pieces are counted from the end.
        memory: see only so many tokens before each piece, and before each new token; None is all. With a memory None
            reads prompts in pieces of the model's context.

    Raises:
        GenerationError: the model can't write text, or can't write it from left to right.
        ConfigError: a memory for a model that can't go on with one (see `check_memory`).
    """

    def __init__(
        self,
        model: Transformer,
        prompts: Sequence[Sequence[int]],
        *,
        horizons: Sequence[int],
        sources: Sequence[Sequence[int]] | None = None,
        prefill_chunk: int | None = None,
        memory: int | None = None,
    ) -> None:
        check_writes(model.config)
        if memory is not None:
            check_memory(model.config)
            prefill_chunk = prefill_chunk or model.config.context_length
        assert all(prompts), "a prompt has at least one token"
        self.model, self.vocab_size, self.device = model, model.config.vocab_size, model.token.weight.device
        self._prompts, self._sources, self._chunk = prompts, sources, prefill_chunk
        self._prefix = model.config.last.looks_ahead(prefix=True)
        self._horizon = torch.tensor(horizons, device=self.device)
        self._cache = _cache(model.config.last, memory)
        self._source = NO_SOURCE
        self._modules = list(model.modules())

    def prefill(self) -> Tensor:
        """See `Steps.prefill`."""
        prefixes = [len(prompt) for prompt in self._prompts] if self._prefix else None
        ids, tags = batched(self._prompts, self.device, prefixes=prefixes)
        tags = replace(tags, horizon=self._horizon)
        columns = ids.shape[1]
        chunk = columns if self._prefix or self._chunk is None else self._chunk
        with evaluating(self._modules):
            if self._sources is not None:
                source, source_tags = batched(self._sources, self.device)
                self._source = self.model.encode(source, tags=source_tags)
            # counted from the end, where the rows are alike: what a row remembers does not depend on the others' length
            first = (columns - 1) % chunk + 1
            pieces = [slice(0, first), *(slice(start, start + chunk) for start in range(first, columns, chunk))]
            for piece in pieces[:-1]:
                self._hidden(ids[:, piece], tags.columns(piece))
            logits = self._logits(ids[:, pieces[-1]], tags.columns(pieces[-1]))
            # the cache now holds the keys and values of the source, so its tags are all that is still read of it
            self._source = replace(self._source, hidden=self._source.hidden.new_empty(0, 0, 0))
        return logits

    def advance(self, token: Tensor) -> Tensor:
        """See `Steps.advance`."""
        position = self._cache.next_position
        if isinstance(position, int):
            tags = replace(Tags.dense(len(token), 1, start=position, device=self.device), horizon=self._horizon)
        else:
            tags = Tags.of(position, horizon=self._horizon)
        with evaluating(self._modules):
            return self._logits(token[:, None], tags)

    def select(self, rows: Sequence[int]) -> None:
        """See `Steps.select`."""
        index = torch.tensor(rows, device=self.device)
        with torch.inference_mode():
            self._cache.select(index)
            self._cache.compact()
            self._horizon = self._horizon[index]
            if self._sources is not None:
                self._source = replace(self._source, tags=self._source.tags.rows(index))

    def _hidden(self, ids: Tensor, tags: Tags) -> Tensor:
        """One pass over [B, T], which the cache takes up."""
        return self.model.hidden(ids, tags=tags, source=self._source, cache=self._cache)

    def _logits(self, ids: Tensor, tags: Tags) -> Tensor:
        """As `_hidden`; logits [B, V] of the last column alone, since a prompt's others can be gigabytes."""
        hidden = self._hidden(ids, tags)
        logits: Tensor = self.model.head(hidden[:, -1:], tags.columns(slice(-1, None)), self.model.token.weight)
        return logits[:, 0]


def _cache(stack: StackConfig, memory: int | None) -> DenseCache | SlidingCache | SumsCache:
    if memory is not None:
        return SlidingCache(memory)
    return SumsCache() if stack.keeps_sums else DenseCache()
