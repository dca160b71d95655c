"""What a request is checked for, and made to fit, before anything runs."""

from __future__ import annotations

from dataclasses import replace

from transpect.base.errors import ConfigError, ContextLengthError, GenerationError
from transpect.cache import DENSE, CacheKind, Sinks
from transpect.core import ModelConfig
from transpect.decode.batching import check_vocabulary
from transpect.decode.constraints import matching
from transpect.decode.guidance import without
from transpect.decode.params import GenerationParams
from transpect.decode.request import Request
from transpect.decode.sampling import check_minimum
from transpect.decode.trace import FREE, Constraint
from transpect.text.tokenizer import Tokenizer


def fit(config: ModelConfig, request: Request, kind: CacheKind = DENSE) -> Request:
    """The request with no more new tokens than there is room for with a cache of this kind; all of it is checked.

    Raises:
        ConfigError, GenerationError, ContextLengthError: as `transpect.decode.stream`.
    """
    params = request.params
    kind = remembering(params, kind)
    kind.check(config)
    room = kind.room(config)
    limit = config.context_length if room is None else room
    place = f"the model's context of {limit} tokens" if limit == config.context_length else f"the {limit} of its cache"
    _check_ids(config, request, limit, place, endless=room is None)
    check_minimum(params, config.vocab_size)
    params.strategy.check(params, config)
    if room is not None:
        return _cut(request, limit, place)
    if params.strategy.takes_back:
        raise ConfigError(
            "a memory of the last tokens can't take tokens back: it has let go of earlier ones for them",
            value=f"cache {kind.kind}, strategy {type(params.strategy).__name__}",
            remedy="Leave out the memory or the sinks, or what drafts tokens.",
        )
    return request


def _check_ids(config: ModelConfig, request: Request, limit: int, place: str, *, endless: bool) -> None:
    """``endless``: what the decoder reads may be longer than the limit."""
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
        if len(ids) > limit and (not endless or name == "source"):
            raise ContextLengthError(
                f"the {name} must fit {place}",
                value=f"{len(ids)} tokens",
                remedy="Shorten it, or use a model with a longer context.",
            )
        check_vocabulary(name, ids, config.vocab_size)


def _cut(request: Request, limit: int, place: str) -> Request:
    """The request with no more new tokens than fit, if it may be cut (``overflow``)."""
    params = request.params
    left = limit - max(len(own.prompt) for own in (request, *without([request])))
    if params.max_new_tokens and not left:
        raise ContextLengthError(
            f"the prompt fills {place} and leaves no room for new ones",
            value=f"{limit - left} tokens",
            remedy="Shorten it, or use a model with a longer context.",
        )
    if params.max_new_tokens <= left:
        return request
    if params.overflow == "error":
        raise ContextLengthError(
            f"prompt and new tokens together must fit {place}",
            value=f"{limit - left} and max_new_tokens={params.max_new_tokens}",
            remedy=f"Ask for at most {left}, shorten the prompt, or say what is to be done: overflow=stop ends the "
            "output where the context ends; overflow=sinks, or a memory, goes on with the last tokens in sight.",
        )
    cut = replace(params, max_new_tokens=left, min_new_tokens=min(params.min_new_tokens, left))
    return replace(request, params=cut)


def constraint_of(config: ModelConfig, request: Request, tokenizer: Tokenizer | None) -> Constraint:
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
    written = tuple(request.written)
    if found.mask(written) is None and not found.complete(written):
        raise GenerationError(
            f"what was written before must be the beginning of a text of its {params.constraint.option}",
            value=written,
            remedy="Pass the parameters that it was written with.",
        )
    return found


def remembering(params: GenerationParams, kind: CacheKind) -> CacheKind:
    """The cache of a request, where others have one of this kind."""
    if params.overflow != "sinks":
        return kind
    if kind != DENSE:
        raise ConfigError(
            "overflow=sinks has a cache of its own",
            value=f"cache {kind.kind}",
            remedy="Leave one of them out; cache=Sinks(n_sinks, memory) says how much is kept.",
        )
    return Sinks()
