"""A model as graphs of plain tensors: what goes in, what comes out, under the names that the field uses.

Axes: B batch, T new tokens, P cached tokens, S source tokens, D model, K key-value heads, E head, V vocabulary.

==================  ==========================================================================================
graph               from → to
==================  ==========================================================================================
an encoder          input_ids, attention_mask[, token_type_ids] → logits, or last_hidden_state, sentence_embedding
a decoder           input_ids, attention_mask, position_ids, past_key_values.N.key|value → logits, present.N.key|value
encoder–decoder     `encoder_model`, `decoder_model` (the first tokens), `decoder_with_past_model` (all that follow)
==================  ==========================================================================================

``attention_mask`` is 1 for a token and 0 for padding, wherever the padding stands; a decoder's covers the P cached
columns and the T new ones. An empty cache is a tensor with P = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transpect.core import CausalLM, Pooled, StackConfig, Tags, Transformer
from transpect.core.context import NO_CARRY, NO_SOURCE, Carry, Context, Source

__all__ = ["Graph", "Port", "graphs_of"]

BATCH, LENGTH, PAST, TOTAL, SOURCE = "batch", "sequence", "past_sequence", "total_sequence", "encoder_sequence"
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Port:
    """An input: its name, an example, and the names of its axes that vary."""

    name: str
    example: Tensor
    axes: dict[int, str]


@dataclass(frozen=True)
class Graph:
    """One file: ``module`` maps the list of its inputs to its outputs."""

    stem: str
    module: nn.Module
    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]


def graphs_of(model: Transformer) -> list[Graph]:
    """The graphs of a model: one, or three for an encoder–decoder."""
    config = model.config
    writes = isinstance(config.head, CausalLM) and config.decoder is not None
    if config.encoder is not None and config.decoder is not None:
        return _encoder_decoder(model)
    if writes and not config.last.looks_ahead(prefix=False):
        return [_decoder(model)]
    return [_encoder(model)]


# ------------------------------------------------------------------------------------------------ a pass in one go


class Whole(nn.Module):
    """A tower without a cache, and its head."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.pooled = isinstance(model.config.head, Pooled)
        self.typed = model.config.embedding.token_types > 0
        self.marked = model.config.last.asks_for("is_global")

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        ids, mask, *rest = inputs
        types = rest.pop(0) if self.typed else None
        tags = Tags.padded(mask > 0, is_global=rest.pop(0) > 0 if self.marked else None)
        hidden, out = run(self.model, ids, Context(tags), types)
        return (hidden, out) if self.pooled else (out,)


class Encode(nn.Module):
    """The encoder of an encoder–decoder."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        assert model.config.encoder is not None
        self.model = model
        self.marked = model.config.encoder.asks_for("is_global")

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        ids, mask, *rest = inputs
        tags = Tags.padded(mask > 0, is_global=rest.pop(0) > 0 if self.marked else None)
        return (tower(self.model, "encoder", ids, Context(tags), None),)


def _ids_and_mask(stack: StackConfig, length: str) -> list[Port]:
    ports = [_whole("input_ids", length), _whole("attention_mask", length, fill=1)]
    return [*ports, *([_whole("global_attention_mask", length)] if stack.asks_for("is_global") else [])]


def _encoder(model: Transformer) -> Graph:
    ports = _ids_and_mask(model.config.last, LENGTH)
    if model.config.embedding.token_types:
        ports.insert(2, _whole("token_type_ids", LENGTH))
    pooled = isinstance(model.config.head, Pooled)
    return Graph(
        "model", Whole(model), tuple(ports), ("last_hidden_state", "sentence_embedding") if pooled else ("logits",)
    )


# ----------------------------------------------------------------------------------------------------- with a cache


class GivenCache:
    """A cache whose content comes in as tensors, and leaves as tensors."""

    length = 0
    next_position = 0

    def __init__(self, tags: Tags, past: list[Pair], cross: list[Pair]) -> None:
        self._tags, self._past, self._cross = tags, past, cross
        self.present: dict[int, Pair] = {}
        self.crossed: dict[int, Pair] = {}

    def admit(self, tags: Tags) -> Tags:
        return self._tags

    def extend(self, layer: int, key: Tensor, value: Tensor) -> Pair:
        if self._past:
            key, value = (torch.cat(pair, 2) for pair in zip(self._past[layer], (key, value), strict=True))
        self.present[layer] = key, value
        return key, value

    def carry(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Carry]:
        return *self.extend(layer, key, value), NO_CARRY

    def cross(self, layer: int, compute: Callable[[], Pair]) -> Pair:
        self.crossed[layer] = self._cross[layer] if self._cross else compute()
        return self.crossed[layer]


class Continue(nn.Module):
    """New tokens after P cached ones."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.prefixed = model.config.last.asks_for("prefix")

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        ids, mask, position, *past = inputs
        until = past.pop(0) if self.prefixed else None
        new = ids.shape[1]
        is_token = mask > 0  # [B, P+T]
        query = position.masked_fill(~is_token[:, -new:], -1)
        known = (mask.cumsum(-1) - 1).masked_fill(~is_token, -1)[:, :-new]
        key = torch.cat([known, query], 1)
        cache = GivenCache(_tags(key, until), list(pairs(past)), [])
        _, logits = run(self.model, ids, Context(_tags(query, until), cache=cache), None)
        return (logits, *flat(cache.present))


class Start(nn.Module):
    """The first tokens of an answer: keys and values of the source are computed, and leave with the others."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        source_mask, ids, hidden = inputs
        tags = Tags.padded(torch.ones_like(ids) > 0)
        cache = GivenCache(tags, [], [])
        source = Source(hidden, Tags.padded(source_mask > 0))
        _, logits = run(self.model, ids, Context(tags, source=source, cache=cache), None)
        return (logits, *(x for i in cache.present for x in (*cache.present[i], *cache.crossed[i])))


class Answer(nn.Module):
    """Further tokens of an answer; the source is needed no more, for its keys and values come with the cache."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        source_mask, ids, *past = inputs
        both = list(pairs(past))
        own, cross = both[0::2], both[1::2]
        behind = own[0][0].shape[2]
        position = torch.arange(behind + ids.shape[1], device=ids.device).expand(ids.shape[0], -1)
        tags = Tags.of(position[:, behind:])
        cache = GivenCache(Tags.of(position), own, cross)
        source = Source(NO_SOURCE.hidden, Tags.padded(source_mask > 0))
        _, logits = run(self.model, ids, Context(tags, source=source, cache=cache), None)
        return (logits, *flat(cache.present))


def _decoder(model: Transformer) -> Graph:
    ports = [
        _port("input_ids", LENGTH),
        Port("attention_mask", torch.ones(2, 7, dtype=torch.int64), {0: BATCH, 1: TOTAL}),
        Port("position_ids", torch.arange(4, 7).repeat(2, 1), {0: BATCH, 1: LENGTH}),
    ]
    if model.config.last.asks_for("prefix"):
        ports.append(Port("prefix_length", torch.ones(2, dtype=torch.int64), {0: BATCH}))
    past = [
        Port(f"past_key_values.{i}.{what}", torch.zeros(2, heads, 4, width), {0: BATCH, 2: PAST})
        for i, heads, width in caches(model)
        for what in ("key", "value")
    ]
    present = (port.name.replace("past_key_values", "present") for port in past)
    return Graph("model", Continue(model), (*ports, *past), ("logits", *present))


def _encoder_decoder(model: Transformer) -> list[Graph]:
    assert model.config.encoder is not None
    mask = Port("encoder_attention_mask", torch.ones(2, 5, dtype=torch.int64), {0: BATCH, 1: SOURCE})
    ids = _port("input_ids", LENGTH)
    hidden = Port("encoder_hidden_states", torch.zeros(2, 5, model.config.d_model), {0: BATCH, 1: SOURCE})
    past = [
        Port(f"past_key_values.{i}.{where}.{what}", torch.zeros(2, heads, columns, width), {0: BATCH, 2: axis})
        for (i, *own), (_, *cross) in zip(caches(model), caches(model, cross=True), strict=True)
        for where, (heads, width), columns, axis in (("decoder", own, 4, PAST), ("encoder", cross, 5, SOURCE))
        for what in ("key", "value")
    ]
    present = [port.name.replace("past_key_values", "present") for port in past]
    own_present = [name for name in present if ".decoder." in name]
    return [
        Graph(
            "encoder_model", Encode(model), tuple(_ids_and_mask(model.config.encoder, SOURCE)), ("last_hidden_state",)
        ),
        Graph("decoder_model", Start(model), (mask, ids, hidden), ("logits", *present)),
        Graph("decoder_with_past_model", Answer(model), (mask, ids, *past), ("logits", *own_present)),
    ]


# ------------------------------------------------------------------------------------------------------- what helps


def run(model: Transformer, ids: Tensor, context: Context, types: Tensor | None) -> tuple[Tensor, Tensor]:
    """(hidden [B, T, D], what the head gives) of the last tower."""
    hidden = tower(model, list(model.config.towers)[-1], ids, context, types)
    out: Tensor = model.head(hidden, context.tags, model.token.weight)
    return hidden, out


def tower(model: Transformer, name: str, ids: Tensor, context: Context, types: Tensor | None) -> Tensor:
    """Hidden states [B, T, D]; without the checks of `Transformer.forward`, which look at numbers."""
    hidden: Tensor = model.towers[name](model.token(ids), context, types)
    return hidden


def caches(model: Transformer, *, cross: bool = False) -> Iterator[tuple[int, int, int]]:
    """(layer, K, E) of self-attention, or of cross-attention, of each layer of the last tower."""
    stack = model.config.last
    kinds = stack.kinds
    for layer, kind in enumerate(stack.kind_of):
        attention = kinds[kind].attention
        if cross and stack.cross is not None:
            attention = stack.cross
        yield layer, attention.kv_heads, attention.width(model.config.d_model)


def pairs(tensors: list[Tensor]) -> Iterator[Pair]:
    """Key and value by key and value."""
    return zip(tensors[0::2], tensors[1::2], strict=True)


def flat(present: dict[int, Pair]) -> Iterator[Tensor]:
    """Keys and values in the order of layers."""
    return (tensor for layer in sorted(present) for tensor in present[layer])


def _tags(position: Tensor, prefix_length: Tensor | None) -> Tags:
    if prefix_length is None:
        return Tags.of(position)
    return Tags.of(position, prefix=(position < prefix_length[:, None]) & (position >= 0))


def _port(name: str, length: str) -> Port:
    return Port(name, torch.zeros(2, 3, dtype=torch.int64), {0: BATCH, 1: length})


def _whole(name: str, length: str, fill: int = 0) -> Port:
    return Port(name, torch.full((2, 5), fill, dtype=torch.int64), {0: BATCH, 1: length})
