"""Tokenizers of models that exist, and tokens that are added to them."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from transpect.interop import body_of, locate
from transpect.text import Tokenizer, load_tokenizer
from transpect.train.recipe import TokenizerSpec


def open_tokenizer(name: str) -> Tokenizer:
    """The tokenizer at a path, or of a model by any name that `transpect.interop.locate` knows.

    Raises:
        CheckpointError: no such model.
        TokenizerError: none there, or a damaged one.
    """
    if Path(name).exists():
        return load_tokenizer(name)
    return load_tokenizer(body_of(locate(name, weights=False)))


def extended(tokenizer: Tokenizer, spec: TokenizerSpec) -> Tokenizer:
    """A tokenizer with the tokens and roles that a spec adds; the ids of its own tokens stay what they are.

    A token that it has already keeps its id, and is from now on matched whole in texts.

    Raises:
        TokenizerError: an unknown role.
    """
    if not spec.adds:
        return tokenizer
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in spec.add_tokens])
    special = [tokenizers.AddedToken(token, special=True, normalized=False) for token in spec.extra_special_tokens]
    backend.add_special_tokens(special)
    roles = {**tokenizer.special_tokens, **spec.special_tokens}
    return Tokenizer(
        backend,
        {role: token for role, token in roles.items() if token is not None},
        chat_templates=tokenizer.chat_templates,
        extra_config=tokenizer.extra_config,
    )
