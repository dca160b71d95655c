"""The Transformer: a chain of towers. An encoder, a decoder, or an encoder and the decoder that looks at it.

Axes: B batch, T query, S source, D model, V vocabulary.

The way through, top to bottom::

    ids [B, T] ── token table ── + segment, + absolute position, norm, dropout          (embeddings.py, positions/)
        x [B, T, D] ── layer 0 … N−1:  x ← after(x + Σ after_branch(branch(before(x))))   (blocks.py)
                           branches:   self-attention, cross-attention, feed-forward      (attention.py, feedforward.py)
        hidden [B, T, D] ── final norm ── head ── logits [B, T, V]                        (heads.py)

The model keeps no state: what it knows besides its weights comes in as arguments and travels in `Context`.
"""

from __future__ import annotations

import re
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError, MaskError
from transpect.core.blocks import Stack
from transpect.core.config import ModelConfig
from transpect.core.context import (
    NO_CACHE,
    NO_MEMORY,
    NO_SOURCE,
    NO_TAP,
    Context,
    Memory,
    Named,
    PassCache,
    Source,
    Tap,
)
from transpect.core.embeddings import Embeddings, check_ids
from transpect.core.heads import Sizes
from transpect.core.initialization import initialize
from transpect.core.kernels.performer import draw_features, redraw_features
from transpect.core.packing import AS_PADDED, Packed
from transpect.core.stack_config import StackConfig
from transpect.core.tags import Tags


class Tower(nn.Module):
    """Embeddings and a stack of layers."""

    def __init__(self, config: ModelConfig, stack: StackConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(config.embedding, config.d_model)
        self.stack = Stack(stack, config.d_model, config.embedding.inner_width(config.d_model), config.context_length)

    def forward(self, tokens: Tensor, context: Context, token_types: Tensor | None) -> Tensor:
        """Token vectors [B, T, D] -> hidden [B, T, D]."""
        x = self.embeddings(tokens, context.tags, self.stack.positions, token_types)
        hidden: Tensor = self.stack(x, context)
        return hidden

    def first(self, n_layers: int) -> Tower:
        """The embeddings, the first layers and the final norm: the same modules."""
        early = copy(self)
        early._modules = {**self._modules, "stack": self.stack.first(n_layers)}
        return early


class Transformer(nn.Module):
    """Build it from a config; call it on ids.

    ``model(ids)`` gives logits [B, T, V] (or what the head gives). For an encoder–decoder,
    ``model(ids, source=model.encode(source_ids))``.

    Args:
        config: what to build.
        seed: of the initial weights; None leaves them as they are, for weights that are about to be loaded (build
            under ``torch.device("meta")`` to allocate nothing).

    Raises:
        ConfigError: a combination that can't be built.
    """

    def __init__(self, config: ModelConfig, *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(config.vocab_size, config.embedding.width(config.d_model))
        self.towers = nn.ModuleDict({name: Tower(config, stack) for name, stack in config.towers.items()})
        self.head = config.head.build(Sizes(config.d_model, config.vocab_size, config.embedding.token_width))
        *self._before, self._last = config.towers
        if seed is not None:
            initialize(self, config.init, self._residual_writers(), seed)
            draw_features(self)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(tensor for held in (self.token.parameters(), self.token.buffers()) for tensor in held).device

    def forward(
        self,
        ids: Tensor,
        *,
        tags: Tags | None = None,
        token_types: Tensor | None = None,
        source: Source = NO_SOURCE,
        cache: PassCache = NO_CACHE,
        memory: Memory = NO_MEMORY,
        tap: Tap = NO_TAP,
        packed: bool = False,
    ) -> Tensor:
        """Run the last tower and the head.

        Args:
            ids: [B, T].
            tags: positions and more of each token; None is rows without padding that follow what ``cache`` or
                ``memory`` holds. For padded rows: ``Tags.padded(ids != pad_id)``.
            token_types: [B, T] segment ids, for models that have such embeddings.
            source: the encoder's output.
            cache: keys and values of earlier tokens; it takes those of these tokens up.
            memory: hidden states of earlier segments.
            tap: sees intermediate tensors, named by tower, e.g. ``decoder.3.self.attention_weights``.
            packed: hold the real tokens alone between two attentions (`transpect.core.packing`): quicker where rows are
                padded, and hidden states of padding are 0. A tap then sees them so. Where rows are read as a whole, for
                sums over blocks or by a memory, all is computed.

        Returns:
            what the head gives: logits [B, T, V] for a language model.
        """
        context = self._context(self._last, ids, tags, source, cache, memory, tap, packed)
        out: Tensor = self.head(self._run(self._last, ids, context, token_types), context.tags, self.token.weight)
        return out

    def hidden(
        self,
        ids: Tensor,
        *,
        tags: Tags | None = None,
        token_types: Tensor | None = None,
        source: Source = NO_SOURCE,
        cache: PassCache = NO_CACHE,
        memory: Memory = NO_MEMORY,
        tap: Tap = NO_TAP,
        packed: bool = False,
    ) -> Tensor:
        """What the head reads, [B, T, D]; arguments as for `forward`."""
        context = self._context(self._last, ids, tags, source, cache, memory, tap, packed)
        return self._run(self._last, ids, context, token_types)

    def encode(
        self,
        ids: Tensor,
        *,
        tags: Tags | None = None,
        token_types: Tensor | None = None,
        tap: Tap = NO_TAP,
        packed: bool = False,
    ) -> Source:
        """Run the encoder of an encoder–decoder on source ids [B, S]; arguments as for `forward`.

        Raises:
            ConfigError: the model has no encoder before its last tower.
        """
        if not self._before:
            raise ConfigError("this model has one tower, so nothing to encode for it", value=self.config.kind)
        tower = self._before[0]
        context = self._context(tower, ids, tags, NO_SOURCE, NO_CACHE, NO_MEMORY, tap, packed)
        return Source(self._run(tower, ids, context, token_types), context.tags)

    def leaving_early(self, n_layers: int) -> Transformer:
        """The model whose last tower ends after its first layers: the same modules, final norm and head included, and
        the same config."""
        early, last = copy(self), self.towers[self._last]
        assert isinstance(last, Tower)
        early._modules = {**self._modules, "towers": nn.ModuleDict({**self.towers, self._last: last.first(n_layers)})}
        return early

    def redraw(self, step: int) -> None:
        """Before update ``step`` of a training, counted from 0: draw random features anew where it is time
        (`Performer.redraw`). They depend on nothing but the kernel's seed, the layer and the step."""
        redraw_features(self, step)

    def _run(self, tower: str, ids: Tensor, context: Context, token_types: Tensor | None) -> Tensor:
        hidden: Tensor = self.towers[tower](self.token(ids), context, token_types)
        return hidden

    def _context(
        self,
        tower: str,
        ids: Tensor,
        tags: Tags | None,
        source: Source,
        cache: PassCache,
        memory: Memory,
        tap: Tap,
        packed: bool,
    ) -> Context:
        check_ids(ids, self.config.vocab_size)
        if cache is not NO_CACHE and memory is not NO_MEMORY:
            raise ConfigError(
                "a pass has a cache or a memory, not both", remedy="A cache already holds what a memory would remember."
            )
        if tags is None:
            tags = following(memory if cache is NO_CACHE else cache, ids)
        elif not isinstance(tags, Tags):
            raise MaskError(
                "tags must be Tags, not a mask", value=type(tags).__name__, remedy="Use Tags.padded(ids != pad_id)."
            )
        elif tags.shape != tuple(ids.shape):
            raise MaskError("tags must have the shape of ids", value=f"{tags.shape} for {tuple(ids.shape)}")
        own: Any = self.towers[tower]
        packs = packed and tags.start is None and memory is NO_MEMORY and own.stack.by_tokens
        return Context(tags, source, cache, memory, Named(tower, tap), Packed(tags) if packs else AS_PADDED)

    def _residual_writers(self) -> dict[str, int]:
        """Projections that end in a residual stream, with the number of branches that write to it."""
        writers: dict[str, int] = {}
        for tower, stack in self.config.towers.items():
            branches = stack.n_layers * sum(len(step) for step in stack.steps)
            for name, module in self.towers[tower].named_modules(prefix=f"towers.{tower}"):
                if isinstance(module, nn.Linear) and re.search(r"\.body\.(out|(experts\.\d+\.)?down)$", name):
                    writers[name] = branches
        return writers


def following(past: PassCache | Memory, ids: Tensor) -> Tags:
    """Tags of unpadded rows [B, T] that go on where ``past`` ends."""
    batch, length = ids.shape
    start = past.next_position
    if isinstance(start, int):
        return Tags.dense(batch, length, start=start, device=ids.device)
    return Tags.of(start + Tags.dense(batch, length, device=ids.device).position)
