"""Rows of JSON, from JSON lines or from a JSON array, each with the line where it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from transpect.base.errors import DataError
from transpect.data.sources.compression import ending
from transpect.data.sources.files import lines, read_text
from transpect.data.sources.jsonl import parse_object

ROW_ENDINGS: Final = (".jsonl", ".ndjson", ".json")

Row = dict[str, Any]


def rows(file: Path) -> Iterator[tuple[int, Row | DataError]]:
    """The objects of a file, each with the number of its first line, and in the place of one what is wrong with it: an
    array where the file ends in ``.json``, else one a line.

    Raises:
        DataError: the file can't be read, or what is wrong is no matter of one object.
    """
    if ending(file) == ".json":
        yield from _array(file, read_text(file))
        return
    for number, line in lines(file):
        try:
            yield number, parse_object(file, number, line)
        except DataError as error:
            yield number, error


def _array(file: Path, text: str) -> Iterator[tuple[int, Row | DataError]]:
    if not text.lstrip().startswith("["):
        raise DataError(
            "a .json file must hold an array of objects",
            value=text[:40],
            file=file,
            line=1,
            remedy="Put them into [ … ], or name a file with an object a line .jsonl.",
        )
    decoder = json.JSONDecoder()
    at = text.index("[") + 1
    number, counted = 1, 0
    while True:
        at = _after_space(text, at)
        number, counted = number + text.count("\n", counted, at), at
        if text[at : at + 1] == "]":
            break
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"an element of a JSON array can't be read: {error}",
                value=text[at : at + 80],
                file=file,
                line=number,
                remedy="Mend or remove it.",
            ) from error
        if not isinstance(row, dict):
            yield number, DataError("each element must be a JSON object", value=row, file=file, line=number)
        else:
            yield number, row
        at = _after_space(text, at)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "]":
            raise DataError(
                "the elements of a JSON array must be parted by commas, and it must be closed",
                value=text[at : at + 40],
                file=file,
                line=number + text.count("\n", counted, at),
            )
    if rest := text[at + 1 :].strip():
        raise DataError("nothing may follow a JSON array", value=rest[:40], file=file, line=number)


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at
