"""A batch of sequences on its way through a model: feed tokens, get the logits of what comes next.

Axes: B batch, T query, S source or column of the cache, k tokens read at once, D model, V vocabulary.

This is all that a strategy of decoding knows of a model: `prefill` once, `advance` by a token a row or `extend` by
several, `forget` what was read in vain, `select` rows. Prompts of different lengths are padded on the left, and rows
may read and keep different numbers of tokens; the tags say which columns are real, so the padding is not seen and takes
no position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.cache import CacheKind, SinksCache, SlidingCache, SumsCache, chosen
from transpect.core import NO_SOURCE, Cache, Tags, Transformer
from transpect.core.modules import modules_of
from transpect.decode.batching import batched, check_writes, evaluating

COMPACT_EVERY = 16
"""After so many times of forgetting, rows that kept different numbers of tokens are moved together."""


class Steps(Protocol):
    """What strategies decode from: a model with its cache, or a table of probabilities."""

    @property
    def vocab_size(self) -> int:
        """V."""

    @property
    def device(self) -> torch.device:
        """Where the logits are."""

    @property
    def spare(self) -> int:
        """How many tokens, of all rows together, a pass reads at about the price of one, takes back, and gives the same
        bits for as in passes of one; 1 where there are no such."""

    def prefill(self, *, every: bool = False) -> Tensor:
        """Read the prompts; logits [B, V] of the token after each. Called once, before all else. With ``every``,
        `hidden` is that of all their tokens, and not of the last one alone; shorter prompts are padded on the left."""

    def advance(self, token: Tensor) -> Tensor:
        """Read one more token a row [B]; logits [B, V] of the one after it."""

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """Read several tokens a row in one pass.

        Args:
            tokens: [B, k].
            real: [B, k] bool, False where a row has no token; None: all are there.

        Returns:
            [B, k, V]: the logits of what follows each token. Those of absent ones mean nothing.
        """

    def forget(self, keep: Tensor) -> None:
        """Of the k columns read last, by one pass or several since `select`, forget those that a row does not keep.

        Args:
            keep: [B, k] bool: of each row's tokens the first ones, since what follows a forgotten one has seen it.

        Raises:
            ConfigError: what is remembered can't be taken back.
        """

    @property
    def hidden(self) -> Tensor:
        """What the head read last, [B, k, D]: of a prompt the last column, or `every`."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order; a row may be chosen more than once or not at all."""


Read = Callable[[Tensor, Tensor | None], Tensor]
"""Tokens [B, k] and which of them are there, to logits [B, k, V]: `Steps.extend`."""


@runtime_checkable
class ReadsAhead(Steps, Protocol):
    """Steps of a model whose first layers can go ahead alone."""

    def ahead(self, n_layers: int) -> AbstractContextManager[Read]:
        """Read on with the first layers, the final norm and the head. On leaving, nothing has been read.

        Raises:
            ConfigError: what is remembered can't be taken back.
        """


class Stepper:
    """A Transformer with a cache.

    Args:
        model: a decoder or an encoder–decoder with a language-model head. Its training mode is left as it is.
        prompts: ids of each row that the last tower begins with, at least one.
        horizons: how long each row will become, prompt and new tokens together (see `Tags.horizon`).
        sources: for an encoder–decoder, ids of each row for the encoder.
        prefill_chunk: read prompts in pieces of so many columns, which bounds memory; None reads them at once. A
            prefix that sees itself both ways is always one piece. Pieces are counted from the end.
        memory: see only so many tokens before each piece, and before each new token; None is all. With a memory None
            reads prompts in pieces of the model's context.
        cache: what is remembered; None is `Dense`, or with a memory `Sliding`.

    Raises:
        GenerationError: the model can't write text, or can't write it from left to right.
        ConfigError: a cache that the model can't be served by (e.g. a memory, see `check_memory`).
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
        cache: CacheKind | None = None,
    ) -> None:
        check_writes(model.config)
        assert all(prompts), "a prompt has at least one token"
        kind = chosen(cache, memory)
        kind.check(model.config)
        self.model, self.vocab_size, self.device = model, model.config.vocab_size, model.device
        self._prompts, self._sources = prompts, sources
        self._chunk = kind.piece(model.config, max(map(len, prompts)), prefill_chunk)
        self._prefix = model.config.last.looks_ahead(prefix=True)
        self._horizon = torch.tensor(horizons, device=self.device)
        self._kind = kind
        self._cache: Cache = kind.build(model.config)
        self._source = NO_SOURCE
        self._read = _NOTHING
        self._forgotten = 0
        self._early: dict[int, Transformer] = {}
        self._modules = modules_of(model)

    @property
    def spare(self) -> int:
        """See `Steps.spare`: products of more rows may sum in another order."""
        return 1

    def prefill(self, *, every: bool = False) -> Tensor:
        """See `Steps.prefill`."""
        prefixes = [len(prompt) for prompt in self._prompts] if self._prefix else None
        ids, tags = batched(self._prompts, self.device, prefixes=prefixes)
        tags = replace(tags, horizon=self._horizon)
        columns = ids.shape[1]
        chunk = columns if self._prefix or self._chunk is None else self._chunk
        with evaluating(self._modules):
            if self._sources is not None:
                source, source_tags = batched(self._sources, self.device)
                self._source = self.model.encode(source, tags=source_tags, packed=True)
            # counted from the end, where the rows are alike: what a row remembers does not depend on the others' length
            first = (columns - 1) % chunk + 1
            pieces = [slice(0, first), *(slice(start, start + chunk) for start in range(first, columns, chunk))]
            read: list[Tensor] = []
            for piece in pieces:
                hidden = self._hidden(ids[:, piece], tags.columns(piece))
                read = [*read, hidden] if every else [hidden[:, -1:].clone()]
            self._read = replace(_NOTHING, hidden=torch.cat(read, 1))
            # the cache now holds the keys and values of the source, so its tags are all that is still read of it
            self._source = replace(self._source, hidden=self._source.hidden.new_empty(0, 0, 0))
            # the last column alone, since the logits of a prompt can be gigabytes
            return self._head(self._read.hidden[:, -1:])[:, 0]

    @property
    def hidden(self) -> Tensor:
        """See `Steps.hidden`."""
        return self._read.hidden

    @property
    def prompts(self) -> Sequence[Sequence[int]]:
        """What is read first, of each row."""
        return self._prompts

    @property
    def kind(self) -> CacheKind:
        """Of the cache."""
        return self._kind

    @property
    def piece(self) -> int | None:
        """How many columns of prompts are read at once; None is all."""
        return self._chunk

    @property
    def plain(self) -> bool:
        """Whether prompts are read from left to right and nothing else is."""
        return self._sources is None and not self._prefix

    def part(self, rows: Sequence[int]) -> Stepper:
        """The same for some of the rows, before the first pass, of a decoder."""
        assert self._sources is None, "of a decoder"
        other = copy(self)
        other._prompts, other._horizon = [self._prompts[row] for row in rows], self._horizon[list(rows)]
        other._cache = self._kind.build(self.model.config)
        return other

    @property
    def modules(self) -> Sequence[nn.Module]:
        """All of the model."""
        return self._modules

    @property
    def rows(self) -> int:
        """B, as long as none were selected."""
        return len(self._prompts)

    @property
    def cache(self) -> Cache:
        """What has been read."""
        return self._cache

    @property
    def source_tags(self) -> Tags | None:
        """Of the sources of an encoder–decoder."""
        return None if self._sources is None else self._source.tags

    def advance(self, token: Tensor) -> Tensor:
        """See `Steps.advance`."""
        return self.extend(token[:, None])[:, 0]

    def extend(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """See `Steps.extend`. Absent tokens are padding by their tags."""
        with evaluating(self._modules):
            # sums can't be taken apart again: what may be taken back is added to a copy
            before = self._cache.fork() if isinstance(self._cache, SumsCache) else None
            hidden = self._hidden(tokens, self._following(tokens, real))
            self._read = _Read(hidden, tokens, real, before)
            return self._head(hidden)

    def forget(self, keep: Tensor) -> None:
        """See `Steps.forget`. A cache of sums goes back and reads again what was kept, in one more pass.

        Raises:
            ConfigError: a memory of the last tokens, which has let go of earlier ones for those to be forgotten; sums
                that several passes have added to.
        """
        cache = self._takes_back()
        with evaluating(self._modules):
            if isinstance(cache, SumsCache):
                self._go_back(keep)
            else:
                earlier = keep.new_ones((), dtype=torch.bool).expand(len(keep), cache.length - keep.shape[1])
                cache.forget(torch.cat([earlier, keep], 1))
                self._forgotten += 1
                if self._forgotten % COMPACT_EVERY == 0:
                    cache.compact()
        self._read = replace(_NOTHING, hidden=self._read.hidden)

    def _go_back(self, keep: Tensor) -> None:
        tokens, real, before = self._read.tokens, self._read.real, self._read.before
        if before is None or keep.shape != tokens.shape:
            raise ConfigError(
                "a cache of sums can take back the last pass alone",
                value=f"{keep.shape[1]} columns of {tokens.shape[1]}",
                remedy="Take softmax attention, or another way to draft.",
            )
        kept = keep if real is None else keep & real
        if not bool(kept.all()):
            self._cache = before
            self._hidden(tokens, self._following(tokens, kept))

    def _takes_back(self) -> Cache:
        if isinstance(self._cache, SlidingCache | SinksCache):
            raise ConfigError(
                "a memory of the last tokens can't take tokens back: it has let go of earlier ones for them",
                value=f"memory={self._cache.limit}",
                remedy="Leave out the memory or the sinks, or what drafts tokens.",
            )
        return self._cache

    @contextmanager
    def ahead(self, n_layers: int) -> Iterator[Read]:
        """See `ReadsAhead.ahead`. The first layers' keys and values are those that the whole model left."""
        cache = self._takes_back()
        length = cache.length
        if isinstance(cache, SumsCache):
            self._cache = cache.fork()
        if n_layers not in self._early:
            self._early[n_layers] = self.model.leaving_early(n_layers)
        model = self._early[n_layers]

        def read(tokens: Tensor, real: Tensor | None) -> Tensor:
            with evaluating(self._modules):
                tags = self._following(tokens, real)
                return self._head(model.hidden(tokens, tags=tags, source=self._source, cache=self._cache))

        try:
            yield read
        finally:
            self._cache = cache
            if not isinstance(cache, SumsCache):
                with torch.inference_mode():
                    cache.crop(length)

    def select(self, rows: Sequence[int]) -> None:
        """See `Steps.select`."""
        index = torch.tensor(rows, device=self.device)
        with torch.inference_mode():
            self._cache.select(index)
            self._cache.compact()
            self._horizon = self._horizon[index]
            self._read = replace(_NOTHING, hidden=self._read.hidden[index])
            if self._sources is not None:
                self._source = replace(self._source, tags=self._source.tags.rows(index))

    def _following(self, tokens: Tensor, real: Tensor | None) -> Tags:
        """Tags of what follows, [B, k]."""
        after = self._cache.next_position
        if real is None and isinstance(after, int):
            tags = Tags.dense(*tokens.shape, start=after, device=self.device)
            return replace(tags, horizon=self._horizon)
        count = torch.ones_like(tokens) if real is None else real.long()
        position = after + count.cumsum(-1) - 1
        return Tags.of(position if real is None else position.masked_fill(~real, -1), horizon=self._horizon)

    def _hidden(self, ids: Tensor, tags: Tags) -> Tensor:
        """One pass over [B, T], which the cache takes up."""
        return self.model.hidden(ids, tags=tags, source=self._source, cache=self._cache)

    def _head(self, hidden: Tensor) -> Tensor:
        """Logits [B, T, V]. A head for language reads no tags."""
        logits: Tensor = self.model.head(hidden, _NO_TAGS, self.model.token.weight)
        return logits


@dataclass(frozen=True)
class _Read:
    """The last pass: what the head read, what may be forgotten of it, and the sums before it."""

    hidden: Tensor
    tokens: Tensor
    real: Tensor | None = None
    before: SumsCache | None = None


_NO_TAGS = Tags.dense(0, 0)
_NOTHING = _Read(torch.empty(0, 0, 0), torch.empty(0, 0, dtype=torch.int64))
