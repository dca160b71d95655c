"""Requests in, tokens out: one way for decoders and encoder–decoders, one prompt and many.

Requests are decoded in batches, each row with its own parameters; a row that has ended leaves its batch at once. What a
request gets depends on its own prompt, parameters and seed, and on nothing else in the batch (up to the rounding of the
matrix products, whose order of sums may change with the number of rows).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence, Set
from dataclasses import replace

from transpect.base.checks import at_least
from transpect.base.errors import ContextLengthError, GenerationError
from transpect.cache import check_memory
from transpect.core import ModelConfig, Transformer
from transpect.decode.batching import check_vocabulary, check_writes
from transpect.decode.constraints import matching
from transpect.decode.events import Events
from transpect.decode.guidance import Guided, without
from transpect.decode.request import Event, Request, Result, collect
from transpect.decode.row import Row
from transpect.decode.sampling import check_minimum
from transpect.decode.stepper import Stepper, Steps
from transpect.decode.trace import FREE, Constraint
from transpect.text.tokenizer import Tokenizer


def generate(
    model: Transformer,
    requests: Sequence[Request],
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    prefill_chunk: int | None = None,
    memory: int | None = None,
) -> list[Result]:
    """As `stream`, all at once: the outputs in the order of the requests, and those of one request in theirs."""
    events = stream(
        model, requests, tokenizer=tokenizer, batch_size=batch_size, prefill_chunk=prefill_chunk, memory=memory
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
) -> Events:
    """Decode requests and give out each token as soon as it is chosen. Closing the iterator cancels the rest, and its
    `Events.cancel` one request.

    All requests are checked before the first is begun. A ``max_new_tokens`` beyond what the context has room for is cut
    to it; the output then ends with ``length``. The prompt of a prefix language model is its prefix.

    Args:
        model: a decoder or an encoder–decoder. It is left in the mode that it is in.
        requests: what to continue.
        tokenizer: for text and stop strings; without one there are ids only.
        batch_size: how many requests are decoded at a time.
        prefill_chunk: see `Stepper`.
        memory: likewise. With it, prompt and output may be longer than the context.

    Raises:
        ConfigError: a memory for a model that can't go on with one.
        GenerationError: a model that can't write, an empty prompt, a source where there should be none or none where
            there should be one, ids outside the vocabulary, stop strings or a constraint without a tokenizer,
            ``min_new_tokens`` where every token ends the output, a constraint that the vocabulary can't write.
        ContextLengthError: a prompt or a source that is longer than the context, or leaves no room for a token.
    """
    for name, value in (("batch_size", batch_size), ("prefill_chunk", prefill_chunk)):
        if value is not None and value < 1:
            raise GenerationError(f"{name} must be at least 1", value=value, remedy="Leave it out for the default.")
    check_writes(model.config)
    if memory is not None:
        check_memory(model.config)
        at_least("memory", memory, 0)
    fitted = [fit(model.config, request.seeded(), endless=memory is not None) for request in requests]
    cancelled = set[int]()
    rows = [
        Row(
            index,
            request,
            tokenizer,
            constraint=_constraint(model.config, request, tokenizer),
            cancelled=cancelled,
        )
        for index, request in enumerate(fitted)
    ]
    return Events(_stream(model, rows, batch_size, prefill_chunk, memory, cancelled), cancelled)


def decode(steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
    """Decode one batch by the strategy that its rows share.

    Args:
        steps: at the beginning, with a row for each of ``rows``.
        rows: each asks for at least one token, and is of a request that passes `fit`.
    """
    return rows[0].params.strategy.decode(steps, rows)


def fit(config: ModelConfig, request: Request, *, endless: bool = False) -> Request:
    """The request with no more new tokens than the context has room for; all of it is checked. ``endless``: the model
    goes on beyond its context.

    Raises:
        GenerationError, ContextLengthError: as `stream`.
    """
    limit, params = config.context_length, request.params
    if (request.source is None) != (config.encoder is None):
        raise GenerationError(
            "a request has a source exactly where the model has an encoder",
            value=f"{'no' if request.source is None else 'a'} source for a model of kind {config.kind}",
            remedy="Pass Request(prompt=ids) to a decoder, Request(prompt=[decoder_start_id], source=ids) to an "
            "encoder–decoder.",
        )
    for name, ids in (("prompt", request.prompt), ("source", request.source), ("negative", request.negative)):
        if ids is None:
            continue
        if len(ids) == 0:
            raise GenerationError(f"a {name} needs at least one token", remedy="Begin it with the model's BOS or EOS.")
        if len(ids) > limit and not endless:
            raise ContextLengthError(
                f"the {name} must fit the model's context of {limit} tokens",
                value=f"{len(ids)} tokens",
                remedy="Shorten it, or use a model with a longer context.",
            )
        check_vocabulary(name, ids, config.vocab_size)
    check_minimum(params, config.vocab_size)
    params.strategy.check(params, config)
    if endless:
        return request
    room = limit - max(len(own.prompt) for own in (request, *without([request])))
    if params.max_new_tokens and not room:
        raise ContextLengthError(
            f"the prompt fills the model's context of {limit} tokens and leaves no room for new ones",
            value=f"{limit - room} tokens",
            remedy="Shorten it, or use a model with a longer context.",
        )
    if params.max_new_tokens <= room:
        return request
    cut = replace(params, max_new_tokens=room, min_new_tokens=min(params.min_new_tokens, room))
    return replace(request, params=cut)


def _constraint(config: ModelConfig, request: Request, tokenizer: Tokenizer | None) -> Constraint:
    """What the output must be like.

    Raises:
        GenerationError: it can't be written.
    """
    params = request.params
    if params.constraint is None:
        return FREE
    found = matching(
        tokenizer,
        params.constraint,
        request.prompt,
        vocab_size=config.vocab_size,
        ends=params.ends,
        banned=params.banned,
    )
    found.mask(())
    return found


def _stream(
    model: Transformer,
    rows: list[Row],
    batch_size: int,
    prefill_chunk: int | None,
    memory: int | None,
    cancelled: Set[int],
) -> Generator[Event, None, None]:
    for event in _all(model, rows, batch_size, prefill_chunk, memory):
        if event.request not in cancelled:
            yield event


def _all(
    model: Transformer, rows: list[Row], batch_size: int, prefill_chunk: int | None, memory: int | None
) -> Iterator[Event]:
    for row in rows:
        if not row.params.max_new_tokens:
            yield from (row.twin(choice).nothing() for choice in range(row.params.n))
    for planned in _batches([row for row in rows if row.params.max_new_tokens], batch_size):
        batch = [row for row in planned if not row.cancelled]
        if not batch:
            continue
        requests = [row.request for row in batch]
        others = without(requests)
        steps = Stepper(
            model,
            [own.prompt for own in (*requests, *others)],
            horizons=[len(own.prompt) + own.params.max_new_tokens for own in (*requests, *others)],
            sources=[own.source or () for own in (*requests, *others)] if model.config.encoder else None,
            prefill_chunk=prefill_chunk,
            memory=memory,
        )
        yield from decode(Guided(steps, [own.params.guidance_scale for own in requests]) if others else steps, batch)


def _batches(rows: Sequence[Row], batch_size: int) -> Iterator[list[Row]]:
    """Rows of one strategy together, with guidance or without, of which each batch takes at most ``batch_size`` rows of
    the model, or one request."""
    for strategy, guided in dict.fromkeys((row.params.strategy, row.params.guided) for row in rows):
        batch: list[Row] = []
        taken = 0
        for row in rows:
            if (row.params.strategy, row.params.guided) != (strategy, guided):
                continue
            for own in strategy.spread(row):
                width = strategy.width(row.params) * (2 if guided else 1)
                if batch and taken + width > batch_size:
                    yield batch
                    batch, taken = [], 0
                batch.append(own)
                taken += width
        if batch:
            yield batch
