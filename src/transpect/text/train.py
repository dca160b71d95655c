"""Training of a tokenizer on texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from transpect.base.errors import TokenizerError
from transpect.text.kinds import KINDS, Kind, Specials
from transpect.text.tokenizer import ROLES, Tokenizer

SPELLINGS: Final = {"byte_bpe": "byte-bpe", "byte-level-bpe": "byte-bpe", "byte_level_bpe": "byte-bpe"}
"""Other ways to write a kind."""


def train_tokenizer(
    kind: str | Kind,
    texts: Iterable[str],
    vocab_size: int | None = None,
    *,
    special_tokens: Mapping[str, str | None] | None = None,
    extra_special_tokens: Sequence[str] = (),
    **options: Any,
) -> Tokenizer:
    """Train a tokenizer.

    Equal texts and options give a byte-identical ``tokenizer.json``, whatever the hash seed and number of threads.

    Args:
        kind: ``"char"``, ``"bpe"``, ``"byte-bpe"``, ``"wordpiece"`` or ``"unigram"``, or one of the classes in
            :mod:`transpect.text.kinds` with its options.
        texts: the corpus; an iterator will do, and is read once. All of it is held in memory. A special token in a
            text parts it and is not learnt from.
        vocab_size: at most this many tokens, special ones included. ``char`` alone can do without.
        special_tokens: role to token, over the kind's own (``kind.default_roles``); None takes a role away.
            Roles: bos, eos, pad, unk, mask, cls, sep. Ids are given in this order from 0.
        extra_special_tokens: more special tokens, without a role, such as ``"<|user|>"``.
        options: options of the kind, e.g. ``lowercase=True``, where it is given by name.

    Raises:
        TokenizerError: an unknown kind, role or option; texts that are empty or not strings; a ``vocab_size`` below
            what the kind must hold; a special token that would not decode to itself.

    Example:
        >>> train_tokenizer("char", ["小猫爱吃鱼"]).encode("猫爱鱼")
        [7, 6, 8]
    """
    trainer = resolve_kind(kind, options)
    specials = Specials(_roles(trainer, special_tokens or {}), tuple(extra_special_tokens))
    for token in specials.tokens:
        if not isinstance(token, str) or not token:
            raise TokenizerError("a special token must be a non-empty string", value=token, remedy="Try '<s>'.")
    if vocab_size is not None and (not isinstance(vocab_size, int) or vocab_size < 1):
        raise TokenizerError("vocab_size must be a whole number from 1", value=vocab_size, remedy="Try 4096.")
    backend = trainer.train(_corpus(texts, specials), vocab_size, specials)
    tokenizer = Tokenizer(backend, specials.roles)
    for token in specials.tokens:
        ids = tokenizer.encode(token)
        if ids != [backend.token_to_id(token)] or tokenizer.decode(ids) != token:
            raise TokenizerError(
                "a special token must decode to itself",
                value=token,
                remedy="Spell it in ASCII without spaces at its ends, such as <user>.",
            )
    return tokenizer


def resolve_kind(kind: str | Kind, options: Mapping[str, Any]) -> Kind:
    """The kind that a tag and options stand for.

    Raises:
        TokenizerError: no such tag, or an option that is void for the kind.
    """
    if not isinstance(kind, str):
        if options:
            raise TokenizerError(
                "options belong to the kind",
                value=sorted(options),
                remedy=f"Write {type(kind).__name__}(...) with them.",
            )
        return kind
    tag = SPELLINGS.get(kind, kind)
    if tag not in KINDS:
        raise TokenizerError("unknown kind of tokenizer", value=kind, remedy=f"Kinds: {', '.join(KINDS)}.")
    known = [field.name for field in fields(KINDS[tag])]
    for name in options:
        if name not in known:
            raise TokenizerError(
                f"a {tag} tokenizer has no such option", value=name, remedy=f"It has {', '.join(known)}."
            )
    return KINDS[tag](**options)


def _roles(kind: Kind, changes: Mapping[str, str | None]) -> dict[str, str]:
    for role in changes:
        if role not in ROLES:
            raise TokenizerError("unknown special-token role", value=role, remedy=f"Roles: {', '.join(ROLES)}.")
    merged = {**kind.default_roles, **changes}
    return {role: token for role, token in merged.items() if token is not None}


def _corpus(texts: Iterable[str], specials: Specials) -> list[str]:
    """The texts between special tokens, checked, without empty ones."""
    if isinstance(texts, str):
        raise TokenizerError(
            "texts must be many strings, not one",
            value=texts,
            remedy="Pass a list, e.g. text.splitlines(keepends=True).",
        )
    between = re.compile("|".join(map(re.escape, sorted(specials.tokens, key=len, reverse=True))) or r"(?!)")
    corpus: list[str] = []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TokenizerError(
                f"text {number} must be a string", value=text, remedy="Decode or pick out the text first."
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"text {number} must be valid Unicode (half a surrogate pair at {error.start})",
                value=text,
                remedy="Clean it first.",
            ) from error
        corpus += [part for part in between.split(text) if part]
    if not corpus:
        raise TokenizerError(
            "a tokenizer needs text to train on, and there is none", remedy="Pass texts that aren't empty."
        )
    return corpus
