"""The ways to read the same samples: the reference, and each that must give what it gives.

Axes: B batch, T tokens, S source tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cache import DenseCache
from transpect.core import NO_SOURCE, CausalLM, Kernel, ModelConfig, Naive, Pooled, Source, Tags, Transformer
from transpect.core.context import NO_CACHE, Cache
from transpect.decode import GenerationParams, Request, generate
from transpect.interop.blank import blank
from transpect.interop.peers import Reading, Sample

__all__ = ["alone", "batched", "cached", "padded", "reference_of", "with_kernel", "writes", "written"]

PADS = 5


def reference_of(model: Transformer) -> Transformer:
    """The same weights, widened to float64 (exactly, whatever they were); softmax attention by the kernel `naive`."""
    device = torch.device("cpu") if model.device.type == "mps" else model.device
    return _twin(model, model.config.computed_by(Naive()), torch.float64, device)


def with_kernel(model: Transformer, kernel: Kernel | str) -> Transformer:
    """The same weights, not copied, under another kernel.

    Raises:
        ConfigError: the kernel can't compute this model, or no attention of it.
    """
    if not model.config.has_softmax:
        raise ConfigError("no layer of this model computes softmax attention")
    return _twin(model, model.config.computed_by(kernel), model.token.weight.dtype, model.device)


def writes(config: ModelConfig) -> bool:
    """Whether the model writes from left to right, so that a cache has a meaning."""
    last = config.last
    return isinstance(config.head, CausalLM) and config.decoder is not None and not last.looks_ahead(prefix=False)


def alone(model: Transformer, samples: Sequence[Sample]) -> list[Reading]:
    """Each sample by itself in one pass."""
    readings = []
    for sample in samples:
        ids = _tensor([sample.ids], model)
        source = _encode(model, [sample.source], 0) if sample.source else NO_SOURCE
        readings += _read(model, ids, _tags(sample, model), source, [slice(0, len(sample.ids))])
    return readings


def cached(model: Transformer, samples: Sequence[Sample], step: int, *, until: int | None = None) -> list[Reading]:
    """Each sample by itself in pieces of ``step`` tokens, through a cache; no further than ``until`` tokens."""
    readings = []
    for sample in samples:
        ids, tags = _tensor([sample.ids], model), _tags(sample, model)
        source = _encode(model, [sample.source], 0) if sample.source else NO_SOURCE
        cache, pieces = DenseCache(), []
        length = len(sample.ids) if until is None else min(len(sample.ids), max(until, sample.prefix))
        for part in _pieces(length, sample.prefix, step):
            now = tags.columns(part) if sample.prefix else _following(cache, ids[:, part], tags.horizon)
            pieces += _read(model, ids[:, part], now, source, [slice(None)], cache)
        readings.append({name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]})
    return readings


def padded(model: Transformer, samples: Sequence[Sample], *, left: bool) -> list[Reading]:
    """Each sample by itself with padding on one side; what stands there are ids like any others."""
    return [_rows(model, [sample], len(sample.ids) + PADS, left=left)[0] for sample in samples]


def batched(model: Transformer, samples: Sequence[Sample], *, left: bool) -> list[Reading]:
    """All samples as rows of one batch, padded to the longest."""
    return _rows(model, samples, max(len(sample.ids) for sample in samples), left=left)


def written(model: Transformer, samples: Sequence[Sample], new: int) -> list[Sample]:
    """What the model writes greedily after each sample, all in one batch, by the engine that serves people."""
    limit = model.config.context_length
    prompts = [replace(sample, ids=sample.ids[: max(1, limit - new)]) for sample in samples]
    requests = [
        Request(
            sample.ids,
            GenerationParams(max_new_tokens=min(new, limit - len(sample.ids)), temperature=0.0),
            sample.source or None,
        )
        for sample in prompts
        if len(sample.ids) < limit
    ]
    results = generate(model, requests)
    return [
        replace(sample, ids=sample.ids + tuple(result.ids), prefix=len(sample.ids) if sample.prefix else 0)
        for sample, result in zip(prompts, results, strict=True)
    ]


def _rows(model: Transformer, samples: Sequence[Sample], width: int, *, left: bool) -> list[Reading]:
    vocabulary = model.config.vocab_size
    rows, parts = [], []
    for number, sample in enumerate(samples):
        pads = [(7 + 3 * i + number) % vocabulary for i in range(width - len(sample.ids))]
        rows.append([*pads, *sample.ids] if left else [*sample.ids, *pads])
        parts.append(slice(len(pads), width) if left else slice(0, len(sample.ids)))
    column = torch.arange(width)
    start = torch.tensor([part.start for part in parts])[:, None]
    length = torch.tensor([len(sample.ids) for sample in samples])[:, None]
    position = torch.where((column >= start) & (column < start + length), column - start, -1)
    inside = position >= 0
    tags = Tags.of(
        position.to(model.device),
        prefix=_below(position, inside, [sample.prefix for sample in samples], model),
        is_global=_below(position, inside, [sample.marked for sample in samples], model),
    )
    sources = [sample.source for sample in samples]
    source = _encode(model, sources, PADS if len(samples) == 1 else 0, left=left) if sources[0] else NO_SOURCE
    return _read(model, _tensor(rows, model), tags, source, parts)


def _read(
    model: Transformer, ids: Tensor, tags: Tags, source: Source, parts: Sequence[slice], cache: Cache = NO_CACHE
) -> list[Reading]:
    """What the head gives, a reading a row, of the columns ``parts``."""
    with torch.inference_mode():
        hidden = model.hidden(ids, tags=tags, source=source, cache=cache)
        out = model.head(hidden, tags, model.token.weight)
    if isinstance(model.config.head, Pooled):
        return [{"hidden": hidden[i, part].cpu(), "pooled": out[i].cpu()} for i, part in enumerate(parts)]
    return [{"logits": (out[i, part] if out.ndim == 3 else out[i]).cpu()} for i, part in enumerate(parts)]


def _encode(model: Transformer, rows: Sequence[Sequence[int]], pads: int, *, left: bool = False) -> Source:
    width = max(map(len, rows)) + pads
    blanks = [width - len(row) for row in rows]
    filled = [[0] * n + list(row) if left else list(row) + [0] * n for n, row in zip(blanks, rows, strict=True)]
    column, gap = torch.arange(width), torch.tensor(blanks)[:, None]
    is_token = column >= gap if left else column < width - gap
    plain = bool(is_token.all())
    device = model.device
    tags = Tags.dense(len(rows), width, device=device) if plain else Tags.padded(is_token.to(device))
    with torch.inference_mode():
        return model.encode(_tensor(filled, model), tags=tags)


def _tags(sample: Sample, model: Transformer) -> Tags:
    """A sample's tags, by itself and without padding."""
    device = model.device
    tags = Tags.dense(1, len(sample.ids), device=device)
    if not sample.prefix and not sample.marked:
        return tags
    return Tags.of(tags.position, prefix=tags.position < sample.prefix, is_global=tags.position < sample.marked)


def _following(cache: DenseCache, ids: Tensor, horizon: Tensor) -> Tags:
    """Tags of the tokens after those that the cache says it holds."""
    start = cache.next_position
    if isinstance(start, int):
        return replace(Tags.dense(*ids.shape, start=start, device=ids.device), horizon=horizon)
    return Tags.of(start + torch.arange(ids.shape[1], device=ids.device), horizon=horizon)


def _pieces(length: int, prefix: int, step: int) -> Iterator[slice]:
    """A prefix that sees itself both ways is one piece."""
    start = 0
    while start < length:
        end = max(start + step, prefix)
        yield slice(start, min(end, length))
        start = end


def _below(position: Tensor, inside: Tensor, limits: Sequence[int], model: Transformer) -> Tensor:
    return ((position < torch.tensor(limits)[:, None]) & inside).to(model.device)


def _tensor(rows: Sequence[Sequence[int]], model: Transformer) -> Tensor:
    return torch.tensor([list(row) for row in rows], dtype=torch.int64, device=model.device)


def _twin(model: Transformer, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> Transformer:
    twin = blank(config)
    state = {name: tensor.detach().to(device, dtype) for name, tensor in model.state_dict().items()}
    twin.load_state_dict(state, assign=True)
    return twin.eval().requires_grad_(False)
