"""How values are spelled on a command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from transpect.base.errors import ConfigError
from transpect.base.files import read_text_file

__all__ = [
    "BIAS",
    "ID",
    "IDS",
    "IDS_BIAS",
    "JSON",
    "MODEL",
    "NOTHING",
    "NUMBER",
    "START_AND_FACTOR",
    "TEXT",
    "TEXT_OR_FILE",
    "TRUTH",
    "WHOLE",
    "Spelling",
    "one_of",
    "or_none",
]

NOTHING: Final = object()
"""What ``none`` on a command line means, where None means that an option was not given."""


@dataclass(frozen=True)
class Spelling:
    """How a value of some kind is given as text.

    Attributes:
        metavar: what to type, on a help page; empty for yes or no.
        read: text to value; ValueError says that it is none.
    """

    metavar: str
    read: Callable[[str], Any]


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(_whole(part.strip()) for part in text.split(","))


def _biased(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def pair(text: str) -> tuple[Any, float]:
        key, equals, bias = text.rpartition("=")
        if not equals:
            raise ValueError(text)
        return read(key), float(bias)

    return pair


def _start_and_factor(text: str) -> tuple[int, float]:
    start, _, factor = text.partition(",")
    return _whole(start.strip()), float(factor)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError(text)
    return _TRUTH[text.lower()]


def _text_or_file(text: str) -> str:
    return read_text_file(Path(text[1:]), ConfigError) if text.startswith("@") else text


def one_of(words: Sequence[str], *, truth: bool = False) -> Spelling:
    """One of some words, or yes or no where ``truth`` says so."""

    def read(text: str) -> Any:
        if text in words:
            return text
        if not truth:
            raise ValueError(text)
        return _truth(text)

    return Spelling("|".join([*(["yes", "no"] if truth else []), *words]), read)


def or_none(spelling: Spelling) -> Spelling:
    """The same, or ``none``, which is read as `NOTHING`."""
    return replace(spelling, read=lambda text: NOTHING if text.lower() == "none" else spelling.read(text))


_TRUTH: Final = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}

TRUTH: Final = Spelling("", _truth)
WHOLE: Final = Spelling("N", _whole)
NUMBER: Final = Spelling("X", float)
TEXT: Final = Spelling("TEXT", str)
TEXT_OR_FILE: Final = Spelling("TEXT", _text_or_file)
JSON: Final = Spelling("JSON", _text_or_file)
MODEL: Final = Spelling("MODEL", str)
ID: Final = Spelling("ID", _whole)
IDS: Final = Spelling("ID,…", _ids)
BIAS: Final = Spelling("ID=X", _biased(_whole))
IDS_BIAS: Final = Spelling("ID,…=X", _biased(_ids))
START_AND_FACTOR: Final = Spelling("N,X", _start_and_factor)
