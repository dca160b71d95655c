"""Requests in, tokens out: one way for decoders and encoder–decoders, one prompt and many.

Requests are decoded in batches, each row with its own parameters; a row that has ended leaves its batch at once. What a
request gets depends on its own prompt, parameters and seed, and on nothing else in the batch, nor on a break after
which it is taken up again (up to the rounding of the matrix products, whose order of sums may change with the number of
rows).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence, Set

from transpect.base.errors import GenerationError
from transpect.cache import CacheKind, Static, chosen
from transpect.core import Transformer
from transpect.decode.batching import check_writes
from transpect.decode.events import Events
from transpect.decode.fitting import constraint_of, fit, remembering
from transpect.decode.guidance import Guided, without
from transpect.decode.program_steps import Runtime, check_runtime, steps_by
from transpect.decode.request import Event, Request, Result, collect
from transpect.decode.resuming import check_resumes
from transpect.decode.row import Row
from transpect.decode.stepper import Stepper, Steps
from transpect.decode.strategies import Strategy
from transpect.text.tokenizer import Tokenizer


def generate(
    model: Transformer,
    requests: Sequence[Request],
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    prefill_chunk: int | None = None,
    memory: int | None = None,
    cache: CacheKind | None = None,
    runtime: Runtime = "torch",
) -> list[Result]:
    """As `stream`, all at once: the outputs in the order of the requests, and those of one request in theirs."""
    events = stream(
        model,
        requests,
        tokenizer=tokenizer,
        batch_size=batch_size,
        prefill_chunk=prefill_chunk,
        memory=memory,
        cache=cache,
        runtime=runtime,
    )
    return collect(events)


def stream(
    model: Transformer,
    requests: Sequence[Request],
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    prefill_chunk: int | None = None,
    memory: int | None = None,
    cache: CacheKind | None = None,
    runtime: Runtime = "torch",
) -> Events:
    """Decode requests and give out each token as soon as it is chosen. Closing the iterator cancels the rest, and its
    `Events.cancel` one request.

    All requests are checked before the first is begun. What becomes of a ``max_new_tokens`` beyond what the context has
    room for is said by ``overflow`` (`GenerationParams`). The prompt of a prefix language model is its prefix.

    Args:
        model: a decoder or an encoder–decoder. It is left in the mode that it is in.
        requests: what to continue.
        tokenizer: for text and stop strings; without one there are ids only.
        batch_size: how many requests are decoded at a time.
        prefill_chunk: see `Stepper`.
        memory: likewise. With it, prompt and output may be longer than the context.
        cache: likewise. What goes on beyond the context does so whatever ``overflow`` says. With `Static` requests
            that draft tokens are decoded one by one, as rows that keep different numbers of them need more columns.
        runtime: what computes the steps after a prompt.

    Raises:
        ConfigError: a cache, or ``overflow="sinks"``, for a model that can't be served by it; ``runtime="program"``
            for a model or a cache that there is no program for.
        GenerationError: a model that can't write, an empty prompt, a source where there should be none or none where
            there should be one, ids outside the vocabulary, stop strings or a constraint without a tokenizer,
            ``min_new_tokens`` where every token ends the output, a constraint that the vocabulary can't write.
        ContextLengthError: a prompt or a source that is longer than the context, or leaves no room for a token, or,
            where ``overflow`` is ``error``, for ``max_new_tokens``.
    """
    for name, value in (("batch_size", batch_size), ("prefill_chunk", prefill_chunk)):
        if value is not None and value < 1:
            raise GenerationError(f"{name} must be at least 1", value=value, remedy="Leave it out for the default.")
    check_writes(model.config)
    kind = chosen(cache, memory)
    kind.check(model.config)
    fitted = [fit(model.config, request.seeded(), kind) for request in requests]
    for request in fitted:
        check_resumes(request, model.config, remembering(request.params, kind))
    for own_kind in {remembering(request.params, kind) for request in fitted}:
        check_runtime(runtime, model, own_kind)
    cancelled = set[int]()
    rows = [
        Row(
            index,
            request,
            tokenizer,
            constraint=constraint_of(model.config, request, tokenizer),
            cancelled=cancelled,
        )
        for index, request in enumerate(fitted)
    ]
    return Events(_stream(model, rows, batch_size, prefill_chunk, kind, runtime, cancelled), cancelled)


def decode(steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
    """Decode one batch by the strategy that its rows share.

    Args:
        steps: at the beginning, with a row for each of ``rows``.
        rows: each asks for at least one token, and is of a request that passes `fit`.
    """
    return rows[0].params.strategy.decode(steps, rows)


def _stream(
    model: Transformer,
    rows: list[Row],
    batch_size: int,
    prefill_chunk: int | None,
    kind: CacheKind,
    runtime: Runtime,
    cancelled: Set[int],
) -> Generator[Event, None, None]:
    for event in _all(model, rows, batch_size, prefill_chunk, kind, runtime):
        if event.request not in cancelled:
            yield event


def _all(
    model: Transformer,
    rows: list[Row],
    batch_size: int,
    prefill_chunk: int | None,
    kind: CacheKind,
    runtime: Runtime,
) -> Iterator[Event]:
    for row in rows:
        if not row.params.max_new_tokens:
            yield from (row.twin(choice).nothing() for choice in range(row.params.n))
    for planned in _batches([row for row in rows if row.params.max_new_tokens], batch_size, kind):
        batch = [row for row in planned if not row.cancelled]
        if not batch:
            continue
        requests = [row.request for row in batch]
        others = without(requests)
        own_kind = remembering(batch[0].params, kind)
        horizons = [len(own.prompt) + own.params.max_new_tokens for own in (*requests, *others)]
        sources = [own.source or () for own in (*requests, *others)]
        first = Stepper(
            model,
            [own.read for own in (*requests, *others)],
            horizons=horizons,
            sources=sources if model.config.encoder else None,
            prefill_chunk=prefill_chunk,
            cache=own_kind,
        )
        with steps_by(runtime, first, max(horizons), max(map(len, sources))) as steps:
            scales = [own.params.guidance_scale for own in requests]
            yield from decode(Guided(steps, scales) if others else steps, batch)


def _batches(rows: Sequence[Row], batch_size: int, kind: CacheKind) -> Iterator[list[Row]]:
    """Rows of one strategy and cache together, with guidance or without, of which each batch takes at most
    ``batch_size`` rows of the model, or one request."""
    for strategy, guided, sinks in dict.fromkeys(map(_sort, rows)):
        batch: list[Row] = []
        taken = 0
        most = 1 if strategy.takes_back and isinstance(kind, Static) else batch_size
        for row in rows:
            if _sort(row) != (strategy, guided, sinks):
                continue
            for own in strategy.spread(row):
                width = strategy.width(row.params) * (2 if guided else 1)
                if batch and taken + width > most:
                    yield batch
                    batch, taken = [], 0
                batch.append(own)
                taken += width
        if batch:
            yield batch


def _sort(row: Row) -> tuple[Strategy, bool, bool]:
    """What rows of one batch have in common."""
    return row.params.strategy, row.params.guided, row.params.overflow == "sinks"
