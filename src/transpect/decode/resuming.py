"""Requests that go on after a break."""

from __future__ import annotations

from transpect.base.errors import GenerationError
from transpect.core import ModelConfig
from transpect.decode.batching import check_vocabulary
from transpect.decode.request import Request


def check_resumes(request: Request, config: ModelConfig, *, endless: bool) -> None:
    """Refuse to go on after a break where the tokens would not be those without one.

    Only a strategy that decides token by token can go on (`Strategy.resumes`), since its noise belongs to the seed and
    to a token's place in the output. A prefix language model can't: its prefix ends with the prompt. A decoder with a
    memory can't: what it remembers depends on the pieces in which it has read.

    Args:
        request: with or without tokens that were written before.
        config: of the model.
        endless: it goes on beyond its context.

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
        "without a memory": endless,
        "that no token has ended": not set(params.ends).isdisjoint(written),
        "of fewer tokens than max_new_tokens": len(written) >= params.max_new_tokens,
    }
    for kind, broken in reasons.items():
        if broken:
            raise GenerationError(
                f"only an output {kind} can go on after a break",
                value=f"{len(written)} tokens written",
                remedy="Begin it anew, without `written`.",
            )
