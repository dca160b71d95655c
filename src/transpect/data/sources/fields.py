"""Texts by the names of their fields: one way to read a row, whatever held it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from transpect.base.codec import did_you_mean
from transpect.base.errors import DataError
from transpect.data.documents import Document

NAMES: Final = 20
"""How many fields are named where one is missing."""
NAME: Final = 40
"""Of each, how many characters: what is no table may have a line of megabytes for a header."""


def document_of(row: Mapping[str, Any], field: str, target: str | None, file: str, line: int) -> Document:
    """The document of a row.

    Args:
        row: values by name.
        field: of the text; of pairs, of the source.
        target: of pairs, of the target, a text, a whole number, true or false; None is single texts.
        file: where the row was read.
        line: its line there, from 1; of what has no lines, the row's number.

    Raises:
        DataError: no such field, or a value that is no text.
    """
    other = None if target is None else text_of(_spelled(row, target), target, file, line)
    return Document(text_of(row, field, file, line), other, file, line)


def _spelled(row: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """The row with a field that is a whole number, or true or false, as JSON writes it: labels often are."""
    value = row.get(field)
    return {**row, field: json.dumps(value)} if isinstance(value, int) else row


def text_of(row: Mapping[str, Any], field: str, file: str, line: int) -> str:
    """The text of a field.

    Raises:
        DataError: no such field, or a value that is no text, or blank.
    """
    if field not in row:
        raise no_such_field(field, row, file, line)
    text = row[field]
    if not isinstance(text, str):
        raise DataError(f"the field {field!r} must be a string", value=text, file=file, line=line, remedy="Quote it.")
    if not text.strip():
        raise DataError(
            f"the field {field!r} must hold text", value=text, file=file, line=line, remedy="Remove the line."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"the field {field!r} holds half of a surrogate pair, which is no character",
            value=text[error.start : error.end],
            file=file,
            line=line,
            remedy="Write the character itself, or both halves of its escape.",
        ) from error
    return text


def no_such_field(field: str, known: Mapping[str, Any], file: str, line: int | None) -> DataError:
    """What is said of a row, or of a whole file, that lacks a field."""
    what = "line" if line is not None else "file"
    names = [repr(name if len(name) <= NAME else f"{name[: NAME - 1]}…") for name in islice(known, NAMES)]
    names += [f"and {len(known) - NAMES:,} more"] if len(known) > NAMES else []
    fields = f"{did_you_mean(field, known)} The {what} has {', '.join(names) or 'no keys'}."
    return DataError(
        f"every line must have the field {field!r}",
        file=file,
        line=line,
        remedy=f"{fields.strip()} Name the field in the source's options.",
    )
