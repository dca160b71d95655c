"""The byte-level alphabet: a printable character for each of the 256 bytes.

GPT-2 spells bytes with characters so that a BPE over characters becomes a BPE over bytes. Printable Latin-1
bytes stand for themselves; the other 68, in order, are U+0100, U+0101, … (a space is ``Ġ``, a newline ``Ċ``).

Source: Radford et al. 2019, section 2.2, and ``bytes_to_unicode`` in OpenAI's ``encoder.py``.
"""

from __future__ import annotations

from typing import Final

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

BYTE_OF: Final[dict[str, int]] = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + i): byte for i, byte in enumerate(_OTHERS)
}
"""The byte that a character of the alphabet stands for."""


def piece_bytes(piece: str) -> bytes:
    """The bytes that a vocabulary entry stands for.

    An entry with a character outside the alphabet is not spelled in it (an added token such as ``<｜User｜>``):
    it stands for its own UTF-8 bytes, as in the ``tokenizers`` package.
    """
    try:
        return bytes([BYTE_OF[char] for char in piece])
    except KeyError:
        return piece.encode("utf-8")
