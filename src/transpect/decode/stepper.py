"""A batch of sequences on its way through a model: feed tokens, get the logits of what comes next.

Axes: B batch, T query, S source, D model, V vocabulary.

This is all that a strategy of decoding knows of a model: `prefill` once, `advance` by a token a row, `select` rows.
Prompts of different lengths are padded on the left; the tags say which columns are real, so the padding is not seen and
takes no position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor, nn

from transpect.base.errors import GenerationError
from transpect.cache import DenseCache
from transpect.core import NO_SOURCE, CausalLM, ModelConfig, Tags, Transformer


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
    """A Transformer with a dense key-value cache.

    Args:
        model: a decoder or an encoder–decoder with a language-model head. Its training mode is left as it is.
        prompts: ids of each row that the last tower begins with, at least one.
        horizons: how long each row will become, prompt and new tokens together (see `Tags.horizon`).
        sources: for an encoder–decoder, ids of each row for the encoder.
        prefill_chunk: read prompts in pieces of so many columns, which bounds memory; None reads them at once. A
            prefix that sees itself both ways is always one piece.

    Raises:
        GenerationError: the model can't write text, or can't write it from left to right.
    """

    def __init__(
        self,
        model: Transformer,
        prompts: Sequence[Sequence[int]],
        *,
        horizons: Sequence[int],
        sources: Sequence[Sequence[int]] | None = None,
        prefill_chunk: int | None = None,
    ) -> None:
        check_writes(model.config)
        assert all(prompts), "a prompt has at least one token"
        self.model, self.vocab_size, self.device = model, model.config.vocab_size, model.token.weight.device
        self._prompts, self._sources, self._chunk = prompts, sources, prefill_chunk
        self._prefix = model.config.last.visibility.looks_ahead(prefix=True)
        self._horizon = torch.tensor(horizons, device=self.device)
        self._cache = DenseCache()
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
            pieces = (slice(start, start + chunk) for start in range(0, columns, chunk))
            *_, logits = [self._read(ids[:, piece], tags.columns(piece)) for piece in pieces]
        return logits

    def advance(self, token: Tensor) -> Tensor:
        """See `Steps.advance`."""
        position = self._cache.next_position
        if isinstance(position, int):
            tags = replace(Tags.dense(len(token), 1, start=position, device=self.device), horizon=self._horizon)
        else:
            tags = Tags.of(position, horizon=self._horizon)
        with evaluating(self._modules):
            return self._read(token[:, None], tags)

    def select(self, rows: Sequence[int]) -> None:
        """See `Steps.select`."""
        index = torch.tensor(rows, device=self.device)
        with torch.inference_mode():
            self._cache.select(index)
            self._cache.compact()
            self._horizon = self._horizon[index]
            if self._sources is not None:
                self._source = self._source.rows(index)

    def _read(self, ids: Tensor, tags: Tags) -> Tensor:
        """One pass over [B, T]; logits [B, V] of the last column alone, since a prompt's others can be gigabytes."""
        hidden = self.model.hidden(ids, tags=tags, source=self._source, cache=self._cache)
        logits: Tensor = self.model.head(hidden[:, -1:], tags.columns(slice(-1, None)), self.model.token.weight)
        return logits[:, 0]


def batched(
    rows: Sequence[Sequence[int]], device: torch.device, *, prefixes: Sequence[int] | None = None
) -> tuple[Tensor, Tags]:
    """Ids [B, T], padded on the left, and their tags.

    Args:
        rows: ids of each row.
        device: where the tensors go.
        prefixes: how many of each row's first tokens are its prefix.
    """
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], dtype=torch.int64, device=device)
    if prefixes is None and all(len(row) == longest for row in rows):
        return ids, Tags.dense(len(rows), longest, device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    tags = Tags.padded(torch.arange(longest, device=device) >= longest - lengths[:, None])
    if prefixes is None:
        return ids, tags
    in_prefix = tags.position < torch.tensor(prefixes, device=device)[:, None]
    return ids, replace(tags, prefix=in_prefix & (tags.position >= 0))


def check_writes(config: ModelConfig) -> None:
    """Refuse a model that can't write text.

    Raises:
        GenerationError: no decoder, a head that gives no next token, or a decoder that looks ahead.
    """
    if config.decoder is None:
        raise GenerationError(
            "an encoder reads text and writes none", value=config.kind, remedy="Use a decoder or an encoder–decoder."
        )
    if not isinstance(config.head, CausalLM):
        raise GenerationError(
            "only a language-model head gives next tokens", value=config.head.kind, remedy="Use the head `causal_lm`."
        )
    if config.last.visibility.looks_ahead(prefix=False):
        raise GenerationError(
            "a decoder writes from left to right, so its tokens may not look ahead of themselves",
            value=f"visibility {config.last.visibility.kind}",
            remedy="Use `causal`, `window` or `prefix_lm`.",
        )


@contextmanager
def evaluating(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Without gradients and dropout; afterwards each module is in the mode that it was in.

    Not for use around a `yield`: both would reach the code that consumes the generator.
    """
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
