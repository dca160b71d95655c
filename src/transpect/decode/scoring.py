"""How probable a model finds given tokens.

Axes: B batch, T query, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.errors import ContextLengthError, GenerationError
from transpect.cache import SegmentMemory, check_memory
from transpect.core import NO_SOURCE, ModelConfig, Source, Tags, Transformer
from transpect.decode.batching import batched, check_vocabulary, check_writes, evaluating


@dataclass(frozen=True)
class Passage:
    """Tokens to be scored.

    Attributes:
        context: ids before them, which are given; without any, the first token can't be scored and is left out.
        target: the tokens.
        source: ids for the encoder of an encoder–decoder.
    """

    context: Sequence[int]
    target: Sequence[int]
    source: Sequence[int] | None = None


@dataclass(frozen=True)
class Score:
    """How probable a text is.

    Attributes:
        logprobs: ln P of each scored token given all before it, in nats.
        n_chars: characters (code points) of the text.
    """

    logprobs: tuple[float, ...]
    n_chars: int

    @property
    def logprob(self) -> float:
        """ln P of the text, in nats."""
        return math.fsum(self.logprobs)

    @property
    def n_tokens(self) -> int:
        """How many tokens were scored."""
        return len(self.logprobs)

    @property
    def perplexity(self) -> float:
        """exp(−ln P / tokens); NaN where there are none."""
        if not self.n_tokens:
            return math.nan
        loss = -self.logprob / self.n_tokens
        return math.inf if loss > 700.0 else math.exp(loss)  # beyond what a float can hold

    @property
    def bits_per_char(self) -> float:
        """−log₂ P / characters: comparable between tokenizers; NaN for an empty text."""
        return -self.logprob / math.log(2) / self.n_chars if self.n_chars else math.nan


@dataclass(frozen=True)
class _Window:
    """A stretch of a passage that is read in one pass: ids [T + 1], of which those from ``first`` on are scored."""

    ids: Sequence[int]
    first: int
    n_context: int
    source: Sequence[int] | None


def logprobs(
    model: Transformer,
    passages: Sequence[Passage],
    *,
    batch_size: int = 8,
    stride: int | None = None,
    memory: int | None = None,
) -> list[tuple[float, ...]]:
    """ln P(token | all before it) of every target token.

    Args:
        model: a decoder or an encoder–decoder. It is left in the mode that it is in.
        passages: what to score. In a prefix language model the context is the prefix.
        batch_size: how many windows are read at a time.
        stride: how to read what is longer than the model's context: in windows of that length, each ``stride`` further
            on, so that a token has at least context − stride tokens before it. None refuses it.
        memory: read any length once, in segments of ``stride`` tokens (None is the model's context), each with what
            every layer remembers of so many tokens before it (see `SegmentMemory`).

    Raises:
        ConfigError: a memory for a model that can't go on with one (see `check_memory`).
        ContextLengthError: a passage longer than the context and no stride, or a source longer than the context.
        GenerationError: a model that can't write, a value outside its range, or an id outside the vocabulary. All
            passages are checked before the first is read.
    """
    check_writes(model.config)
    limit = model.config.context_length
    if batch_size < 1:
        raise GenerationError("batch_size must be at least 1", value=batch_size, remedy="Leave it out for the default.")
    if stride is not None and not 1 <= stride <= limit:
        raise GenerationError(
            f"stride must be from 1 to the context of {limit}", value=stride, remedy="Try half of it."
        )
    if memory is not None:
        check_memory(model.config)
        if memory < 0:
            raise GenerationError("memory must be at least 0", value=memory)
    reach = stride if memory is None else None
    windows = [_windows(passage, model.config, reach, any_length=memory is not None) for passage in passages]
    flat = [(i, window) for i, own in enumerate(windows) for window in own]
    order = sorted(range(len(flat)), key=lambda i: len(flat[i][1].ids))  # alike lengths together: little padding
    found: list[list[float]] = [[] for _ in flat]
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        batch = [flat[i][1] for i in places]
        scores = _score(model, batch) if memory is None else _score_in_segments(model, batch, stride or limit, memory)
        for place, values in zip(places, scores, strict=True):
            found[place] = values
    joined: list[list[float]] = [[] for _ in passages]
    for (passage, _), values in zip(flat, found, strict=True):
        joined[passage] += values
    return [tuple(values) for values in joined]


def _windows(passage: Passage, config: ModelConfig, stride: int | None, *, any_length: bool) -> list[_Window]:
    limit = config.context_length
    if any_length:
        limit = max(limit, len(passage.context) + len(passage.target))
    source = () if passage.source is None else passage.source
    for name, part in (("context", passage.context), ("target", passage.target), ("source", source)):
        check_vocabulary(name, part, config.vocab_size)
    ids = [*passage.context, *passage.target]
    given = len(passage.context)
    if len(source) > limit:
        raise ContextLengthError(
            f"the source must fit the model's context of {limit} tokens",
            value=f"{len(source)} tokens",
            remedy="Shorten it.",
        )
    # the last token is predicted, not read
    if len(ids) > limit + 1 and stride is None:
        raise ContextLengthError(
            f"a text to score must fit the model's context of {limit} tokens",
            value=f"{len(ids) - 1} tokens",
            remedy=f"Pass stride={max(1, limit // 2)} to read it in overlapping windows, or shorten it.",
        )
    windows = []
    begin, scored = 0, max(given, 1)
    while scored < len(ids):
        end = min(begin + limit + 1, len(ids))
        if scored < end:
            windows.append(_Window(ids[begin:end], scored - begin, max(0, given - begin), passage.source))
            scored = end
        begin += stride or limit
    return windows


def _score(model: Transformer, windows: Sequence[_Window]) -> list[list[float]]:
    device = model.device
    prefixes = [window.n_context for window in windows] if model.config.last.looks_ahead(prefix=True) else None
    with evaluating(list(model.modules())):
        ids, tags = batched([window.ids[:-1] for window in windows], device, prefixes=prefixes)
        hidden = model.hidden(ids, tags=tags, source=_source(model, windows), packed=True)
        scores = []
        for row, window in enumerate(windows):
            wanted = slice(ids.shape[1] - (len(window.ids) - window.first), None)
            target = torch.tensor(window.ids[window.first :], device=device)
            scores.append(_picked(model, hidden[row : row + 1, wanted], tags.columns(wanted), target))
    return scores


def _score_in_segments(model: Transformer, rows: Sequence[_Window], length: int, limit: int) -> list[list[float]]:
    """Padded on the right, so that each row is cut where it would be alone."""
    device = model.device
    longest = max(len(row.ids) for row in rows)
    ids = torch.tensor([[*row.ids, *[0] * (longest - len(row.ids))] for row in rows], device=device)  # [B, T + 1]
    sizes = torch.tensor([len(row.ids) - 1 for row in rows], device=device)
    tags = Tags.padded(torch.arange(longest - 1, device=device) < sizes[:, None])
    past, scores = SegmentMemory(limit), [list[float]() for _ in rows]
    with evaluating(list(model.modules())):
        for start in range(0, longest - 1, length):
            part = slice(start, min(start + length, longest - 1))
            hidden = model.hidden(ids[:, part], tags=tags.columns(part), memory=past)
            for row, window in enumerate(rows):
                wanted = slice(max(part.start, window.first - 1), min(part.stop, len(window.ids) - 1))
                if wanted.start < wanted.stop:
                    own = hidden[row : row + 1, wanted.start - start : wanted.stop - start]
                    scores[row] += _picked(
                        model, own, tags.columns(wanted), ids[row, wanted.start + 1 : wanted.stop + 1]
                    )
    return scores


def _picked(model: Transformer, hidden: Tensor, tags: Tags, target: Tensor) -> list[float]:
    """ln P of each target [T] from what the head reads [1, T, D]; a row at a time, as a batch's logits can be
    gigabytes."""
    logits: Tensor = model.head(hidden, tags, model.token.weight)[0]  # [T, V]
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    picked: list[float] = (wide.gather(-1, target[:, None])[:, 0] - wide.logsumexp(-1)).tolist()
    return picked


def _source(model: Transformer, windows: Sequence[_Window]) -> Source:
    sources = [window.source for window in windows if window.source is not None]
    if len(sources) != (len(windows) if model.config.encoder else 0):
        raise GenerationError(
            "a passage has a source exactly where the model has an encoder",
            value=f"a model of kind {model.config.kind}",
            remedy="Pass (source, target) pairs to an encoder–decoder.",
        )
    if not sources:
        return NO_SOURCE
    ids, tags = batched(sources, model.device)
    return model.encode(ids, tags=tags, packed=True)
