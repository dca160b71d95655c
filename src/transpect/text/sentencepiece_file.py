"""SentencePiece's ``.model`` files, read without its library: a protocol buffer of pieces, scores and a normaliser.

Source: sentencepiece_model.proto in https://github.com/google/sentencepiece; https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import tokenizers

from transpect.base.errors import TokenizerError
from transpect.base.files import refuse_pointer
from transpect.text.spm import Kind, Pieces, bpe, unigram

__all__ = ["load_sentencepiece"]

_UNIGRAM, _BPE = 1, 2
_KINDS: Final = {_UNIGRAM: "unigram", _BPE: "bpe", 3: "word", 4: "char"}
_WHOLE: Final = "The file is damaged, or no SentencePiece model: copy it again."


def load_sentencepiece(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, str]]:
    """The backend of a ``.model`` file, and its special tokens by role.

    Raises:
        TokenizerError: no such file, a damaged one, or a kind of model that is not supported.
    """
    refuse_pointer(path, TokenizerError)
    try:
        return _build(path.read_bytes())
    except OSError as error:
        raise TokenizerError(f"can't be read ({error.strerror})", file=path, remedy="Check the path.") from error
    except (UnicodeDecodeError, struct.error, ValueError) as error:
        raise TokenizerError(f"not a SentencePiece model ({error})", file=path, remedy=_WHOLE) from error
    except TokenizerError as error:
        error.file = error.file or path
        raise


def _build(data: bytes) -> tuple[tokenizers.Tokenizer, dict[str, str]]:
    texts: list[str] = []
    scores: list[float] = []
    kinds: list[Kind] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for field, value in _fields(data):
        if field == 1:
            piece = dict(_fields(_message(value)))
            texts.append(_message(piece.get(1, b"")).decode("utf-8"))
            scores.append(struct.unpack("<f", _message(piece[2]))[0] if 2 in piece else 0.0)
            kinds.append(Kind(piece.get(3, Kind.NORMAL)))
        elif field in (2, 3):
            (trainer if field == 2 else normalizer).update(_fields(_message(value)))
    if not texts:
        raise TokenizerError("a SentencePiece model must have pieces", remedy=_WHOLE)
    if len(set(texts)) < len(texts):
        raise TokenizerError("a piece may stand in a model only once", remedy=_WHOLE)
    kind = trainer.get(3, _UNIGRAM)
    if kind not in (_UNIGRAM, _BPE):
        raise TokenizerError(
            "a SentencePiece model must be of the type unigram or bpe", value=_KINDS.get(kind, kind), remedy=""
        )
    if not normalizer.get(5, 1):
        raise TokenizerError("a SentencePiece model must escape its spaces", remedy="Use a tokenizer.json.")
    pieces = Pieces(
        texts,
        scores,
        kinds,
        prefix=bool(normalizer.get(3, 1)),
        squeeze=bool(normalizer.get(4, 1)),
        charsmap=_message(normalizer.get(2, b"")),
        suffix=bool(trainer.get(24, 0)),
        whole_text=True,
    )
    backend = unigram(pieces) if kind == _UNIGRAM else bpe(pieces)
    numbers = {
        "unk": trainer.get(40, 0),
        "bos": trainer.get(41, 1),
        "eos": trainer.get(42, 2),
        "pad": trainer.get(43, -1),
    }
    wanted = {"unk": Kind.UNKNOWN, "bos": Kind.CONTROL, "eos": Kind.CONTROL, "pad": Kind.CONTROL}
    return backend, {role: texts[i] for role, i in numbers.items() if 0 <= i < len(texts) and kinds[i] == wanted[role]}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: numbers as they are, all else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value - 2**64 if value >= 2**63 else value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of the wire type {wire}")
        if at + size > len(data):
            raise ValueError("a field that ends beyond the file")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("the file ends within a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & (2**64 - 1), at
    raise ValueError("a number of more than ten bytes")


def _message(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where a message should stand")
    return value
