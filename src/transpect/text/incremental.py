"""Decoders that take pieces one at a time.

A decoder of the ``tokenizers`` package turns a list of pieces into a list of pieces, which together are the text.
Each has here a *stage*: a machine that is given the pieces one by one and gives out, as early as it can be known, what
the decoder would give for all of them. Chained stages are exact where each is, so nothing is decoded twice and no
window has to be guessed. What a stage keeps:

- per piece (``Replace``, ``Strip``): nothing. After the first (``Metaspace``, ``WordPiece``): whether it was the first.
- ``ByteLevel``: at most 3 bytes, the beginning of a UTF-8 character.
- ``ByteFallback``: the current run of ``<0xNN>`` tokens. The decoder reads a run as a whole: one invalid byte at its
  end makes every byte of it U+FFFD, so none can be given out before the run is over.
- ``BPEDecoder``: the space at the end of the last piece, which goes where no other follows.
- after ``Fuse`` the text is one piece: ``Strip`` keeps how much is still to be cut, ``Replace`` the characters at the
  end that may begin its pattern.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from tokenizers import Regex, decoders

from transpect.base.errors import TokenizerError
from transpect.text.byte_level import piece_bytes
from transpect.text.stopping import begun_at


class Stage(Protocol):
    """A decoder as a machine. ``feed`` of all pieces and then ``end`` give out what the decoder would at once."""

    def feed(self, piece: str) -> Iterable[str]:
        """What is certain after one more piece."""
        ...

    def end(self) -> Iterable[str]:
        """What is left after the last piece."""
        ...

    def settle(self) -> Iterable[str]:
        """What is held, but for the beginning of a character: all that is text by itself."""
        ...


class _HoldsNothing:
    """The end of a stage that gives out all at once."""

    def end(self) -> Iterable[str]:
        return []

    def settle(self) -> Iterable[str]:
        return []


def build_stages(spec: Mapping[str, Any] | None) -> list[Stage]:
    """The stages of a decoder as ``tokenizer.json`` spells it; None: pieces joined with spaces.

    Raises:
        TokenizerError: a decoder that has no stage.
    """
    if spec is None:
        return [_Joined()]
    stages: list[Stage] = []
    fused = False
    for part in flat(spec):
        build = (_FUSED if fused else _PIECEWISE).get(part["type"])
        stage = None if build is None else build(part)
        if stage is None:
            raise TokenizerError(
                f"the decoder {part['type']} can't be streamed{' after the pieces are joined' if fused else ''}",
                value=part,
                remedy="Decode all ids at once.",
            )
        stages.append(stage)
        fused = fused or part["type"] in _FUSING
    return stages


def flat(spec: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The decoders of a decoder, in their order."""
    if spec["type"] == "Sequence":
        for part in spec["decoders"]:
            yield from flat(part)
    else:
        yield spec


class _Joined(_HoldsNothing):
    """No decoder: spaces between pieces."""

    def __init__(self) -> None:
        self._before = ""

    def feed(self, piece: str) -> Iterable[str]:
        before, self._before = self._before, " "
        return [before + piece]


class _Each(_HoldsNothing):
    """A decoder that changes each piece by itself."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change

    def feed(self, piece: str) -> Iterable[str]:
        return [self._change(piece)]


class _FirstAndRest(_HoldsNothing):
    """A decoder that treats the first piece differently from all others."""

    def __init__(self, decoder: decoders.Decoder) -> None:
        self._decode, self._first = decoder.decode, True

    def feed(self, piece: str) -> Iterable[str]:
        if self._first:
            self._first = False
            return [self._decode([piece])]
        return [self._decode(["", piece])]  # an empty first piece decodes to nothing


class _WordEnds:
    """``BPEDecoder``: the mark of a word's end is a space, and in the last piece nothing."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._if_followed = self._if_last = ""

    def feed(self, piece: str) -> Iterable[str]:
        ready = self._if_followed
        followed, last = piece.replace(self._suffix, " "), piece.replace(self._suffix, "")
        same = next((i for i, (a, b) in enumerate(zip(followed, last, strict=False)) if a != b), len(last))
        self._if_followed, self._if_last = followed[same:], last[same:]
        return [ready + last[:same]]

    def end(self) -> Iterable[str]:
        return [self._if_last]

    def settle(self) -> Iterable[str]:
        return []  # the space that is held comes with the next word


class _ByteLevel:
    """Pieces spell bytes, and all bytes together are UTF-8. Python and Rust put U+FFFD in the same places."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: str) -> Iterable[str]:
        return [self._utf8.decode(piece_bytes(piece))]

    def end(self) -> Iterable[str]:
        return [self._utf8.decode(b"", final=True)]

    def settle(self) -> Iterable[str]:
        return []  # what is held is the beginning of a character


_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_token(piece: str) -> int | None:
    """The byte that ``<0xNN>`` stands for, or None for any other piece."""
    found = _BYTE_TOKEN.fullmatch(piece)
    return None if found is None else int(found[1], 16)


class _ByteFallback:
    """A run of ``<0xNN>`` is a string if it is valid UTF-8 as a whole, else U+FFFD for each byte."""

    def __init__(self) -> None:
        self._run = bytearray()

    def feed(self, piece: str) -> Iterable[str]:
        byte = byte_token(piece)
        if byte is None:
            return [*self.end(), piece]
        self._run.append(byte)
        return []

    def end(self) -> Iterable[str]:
        run, self._run = self._run, bytearray()
        if not run:
            return []
        try:
            return [run.decode("utf-8")]
        except UnicodeDecodeError:
            return ["\ufffd" * len(run)]

    def settle(self) -> Iterable[str]:
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        text = utf8.decode(bytes(self._run))
        self._run = bytearray(utf8.getstate()[0])
        return [text] if text else []


class _StripFused(_HoldsNothing):
    """``Strip`` of the whole text: up to ``start`` characters at its beginning."""

    def __init__(self, char: str, start: int) -> None:
        self._char, self._left = char, start

    def feed(self, piece: str) -> Iterable[str]:
        rest = piece.lstrip(self._char)
        cut = min(self._left, len(piece) - len(rest))
        self._left = 0 if rest else self._left - cut
        return [piece[cut:]]


class _ReplaceFused:
    """``Replace`` of a fixed string in the whole text, from left to right."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new, self._held = old, new, ""

    def feed(self, piece: str) -> Iterable[str]:
        *done, rest = (self._held + piece).split(self._old)
        at = begun_at(rest, [self._old])
        self._held = rest[at:]
        return [self._new.join([*done, rest[:at]])]

    def end(self) -> Iterable[str]:
        return [self._held]

    def settle(self) -> Iterable[str]:
        held, self._held = self._held, ""
        return [held]


def _replace(spec: Mapping[str, Any]) -> Stage:
    pattern = spec["pattern"]
    old = pattern["String"] if "String" in pattern else Regex(pattern["Regex"])
    decode = decoders.Replace(old, spec["content"]).decode
    return _Each(lambda piece: decode([piece]))


def _strip(spec: Mapping[str, Any]) -> Stage:
    decode = decoders.Strip(spec["content"], spec["start"], spec["stop"]).decode
    return _Each(lambda piece: decode([piece]))


def _metaspace(spec: Mapping[str, Any]) -> Stage:
    return _FirstAndRest(decoders.Metaspace(spec["replacement"], spec["prepend_scheme"], spec["split"]))


def _word_piece(spec: Mapping[str, Any]) -> Stage:
    # Its first piece stays as it is and a later one gets a space before it, also before nothing.
    return _FirstAndRest(decoders.WordPiece(spec["prefix"], spec["cleanup"]))


def _strip_fused(spec: Mapping[str, Any]) -> Stage | None:
    return _StripFused(spec["content"], spec["start"]) if spec["stop"] == 0 else None


def _replace_fused(spec: Mapping[str, Any]) -> Stage | None:
    old = spec["pattern"].get("String")
    return _ReplaceFused(old, spec["content"]) if old else None


_Builders = Mapping[str, Callable[[Mapping[str, Any]], Stage | None]]

_PIECEWISE: Final[_Builders] = {
    "Replace": _replace,
    "Strip": _strip,
    "Metaspace": _metaspace,
    "WordPiece": _word_piece,
    "BPEDecoder": lambda spec: _WordEnds(spec["suffix"]),
    "ByteFallback": lambda _: _ByteFallback(),
    "ByteLevel": lambda _: _ByteLevel(),
    "Fuse": lambda _: _Each(str),
}
_FUSED: Final[_Builders] = {"Strip": _strip_fused, "Replace": _replace_fused, "Fuse": lambda _: _Each(str)}
"""Decoders of the text as a whole. Those that are missing, or give None, have no bounded state."""

_FUSING: Final = ("Fuse", "ByteLevel")
"""Decoders after which the text is one piece."""
