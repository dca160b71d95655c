"""Requests that go on after a break."""

from __future__ import annotations

from transpect.base.errors import GenerationError
from transpect.cache import CacheKind, Dense, Static
from transpect.core import ModelConfig
from transpect.decode.batching import check_vocabulary
from transpect.decode.request import Request


def check_resumes(request: Request, config: ModelConfig, kind: CacheKind) -> None:
    """Refuse to go on after a break where the tokens would not be those without one.

    Only a strategy that decides token by token can go on (`Strategy.resumes`), since its noise belongs to the seed and
    to a token's place in the output. A prefix language model can't: its prefix ends with the prompt. A cache that
    forgets or rounds can't: what it gives depends on the pieces in which a text was read.

    Args:
        request: with or without tokens that were written before; its ``max_new_tokens`` fits the context.
        config: of the model.
        kind: of the cache.

    Raises:
        GenerationError: it can't go on, or has ended already.
    """
    written, params = request.written, request.params
    if not written:
        return
    check_vocabulary("written output", written, config.vocab_size)
    reasons = {
        "of n=1": params.n > 1,
        "of a strategy that decides token by token": not params.strategy.resumes,
        "of a model without a prefix": config.last.looks_ahead(prefix=True),
        "with a cache that keeps all as it is": not isinstance(kind, Dense | Static),
        "that no token has ended": not set(params.ends).isdisjoint(written),
        "of fewer tokens than max_new_tokens": len(written) >= params.max_new_tokens,
    }
    for what, broken in reasons.items():
        if broken:
            raise GenerationError(
                f"only an output {what} can go on after a break",
                value=f"{len(written)} tokens written",
                remedy="Begin it anew, without `written`.",
            )
