"""What each token of a vocabulary adds to a text, in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from transpect.base.errors import TokenizerError
from transpect.text.byte_level import piece_bytes
from transpect.text.incremental import Stage, build_stages, byte_token, flat
from transpect.text.tokenizer import Tokenizer

_BY_PIECE: Final = {"Replace", "Strip", "Metaspace", "WordPiece"}
"""Decoders that give a piece the same text wherever it stands, but for the first piece of a text."""

_NEVER_IN_UTF8: Final = frozenset([0xC0, 0xC1, *range(0xF5, 0x100)])


def token_bytes(tokenizer: Tokenizer, *, at_start: bool = False) -> tuple[bytes, ...]:
    """The bytes that each token adds to the text before it, by id. They are found out once for each tokenizer.

    The text of a sequence of ids, special ones left out, is the UTF-8 of their bytes put together wherever that is
    valid. A token adds the same wherever it stands, but as the first of a text, where some decoders drop a space.

    Args:
        tokenizer: of any kind.
        at_start: what each adds as the first token of a text.

    Returns:
        no bytes for special tokens, for those without text, and for those whose bytes are never in UTF-8.

    Raises:
        TokenizerError: the text of a token depends on more than that.

    Example:
        >>> token_bytes(tokenizer)[tokenizer.token_to_id("Ġthe")]
        b' the'
    """
    made = _MADE.setdefault(tokenizer, {})
    if at_start not in made:
        made[at_start] = tuple(_table(tokenizer, at_start))
    return made[at_start]


_MADE: Final[WeakKeyDictionary[Tokenizer, dict[bool, tuple[bytes, ...]]]] = WeakKeyDictionary()


def _table(tokenizer: Tokenizer, at_start: bool) -> list[bytes]:
    spec = tokenizer.decoder_spec
    parts = [] if spec is None else list(flat(spec))
    stripped = _dropped_at_start(parts)
    pieces = {i: piece for piece, i in tokenizer.backend.get_vocab(with_added_tokens=True).items()}
    bytes_are_tokens = any(part["type"] == "ByteFallback" for part in parts)
    stages = build_stages(spec)
    _fed(stages, "a")  # after a first piece, their state does not change any more
    table = [b""] * tokenizer.vocab_size
    for i, piece in pieces.items():
        byte = byte_token(piece) if bytes_are_tokens else None
        if parts and parts[0]["type"] == "ByteLevel":
            added = piece_bytes(piece)
        elif byte is not None:
            added = b"" if at_start and bytes([byte]) == stripped else bytes([byte])
        else:
            added = _fed(build_stages(spec) if at_start else stages, piece).encode()
        if i not in tokenizer.special_ids and _NEVER_IN_UTF8.isdisjoint(added):
            table[i] = added
    return table


def _fed(stages: Iterable[Stage], piece: str) -> str:
    pieces = [piece]
    for stage in stages:
        pieces = [out for piece in pieces for out in stage.feed(piece)]
    return "".join(pieces)


def _dropped_at_start(parts: Sequence[Mapping[str, Any]]) -> bytes:
    """The character that a decoder drops where a text begins with it; b"" for none.

    Raises:
        TokenizerError: a decoder that looks at more than one piece.
    """
    kinds = [part["type"] for part in parts]
    joined = next((at for at, kind in enumerate(kinds) if kind in ("ByteLevel", "ByteFallback", "Fuse")), len(kinds))
    whole = parts[joined:]
    match [part["type"] for part in whole]:
        case [] | ["ByteFallback"] | ["Fuse"] | ["ByteFallback", "Fuse"]:
            holds, dropped = set(kinds[:joined]) <= _BY_PIECE, b""
        case ["ByteLevel"] | ["ByteLevel", "Fuse"]:
            holds, dropped = joined == 0, b""
        case ["Fuse", "Strip"] | ["ByteFallback", "Fuse", "Strip"]:
            strip = whole[-1]
            holds = set(kinds[:joined]) <= _BY_PIECE and strip["start"] <= 1 and strip["stop"] == 0
            holds, dropped = holds and strip["content"].isascii(), strip["content"].encode()[: strip["start"]]
        case _:
            holds, dropped = False, b""
    if not holds:
        raise TokenizerError(
            "the bytes of a token must not depend on the tokens after it",
            value=f"the decoder {' + '.join(kinds)}",
            remedy="Use a tokenizer of another kind.",
        )
    return dropped
