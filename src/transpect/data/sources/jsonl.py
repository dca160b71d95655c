"""JSON lines: an object a line, the text in one of its fields."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from transpect.base.codec import did_you_mean
from transpect.base.errors import DataError
from transpect.data.documents import Document, Listed
from transpect.data.sources.base import Source
from transpect.data.sources.files import find, lines

JSONL_ENDINGS: Final = (".jsonl", ".ndjson")


@final
@dataclass(frozen=True)
class Jsonl(Source, kind="jsonl"):
    """One JSON object a line. Blank lines are passed over; a blank text is an error.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        field: the key of the text; of pairs, of the source.
        target: of pairs, the key of the target; None is single texts.
    """

    path: str
    field: str = "text"
    target: str | None = None

    def documents(self) -> Listed:
        found = [
            self._document(file, number, line)
            for file in find(self.path, JSONL_ENDINGS)
            for number, line in lines(file)
        ]
        if not found:
            raise DataError("a source must hold text; this one is blank", file=self.path)
        return Listed(found)

    def _document(self, file: Path, number: int, line: str) -> Document:
        row = _parse(file, number, line)
        target = None if self.target is None else _text(row, self.target, file, number)
        return Document(_text(row, self.field, file, number), target, str(file), number)


def _parse(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            f"a line must be one JSON object: {error.msg} at column {error.colno}",
            value=line,
            file=file,
            line=number,
            remedy="Mend or remove the line.",
        ) from error
    except RecursionError as error:
        raise DataError("the JSON is nested too deep", file=file, line=number, remedy="Remove the line.") from error
    except ValueError as error:  # Python reads no integer of thousands of digits
        raise DataError(
            "the JSON has a number of too many digits", file=file, line=number, remedy="Remove the line."
        ) from error
    if not isinstance(row, dict):
        raise DataError(
            "a line must be one JSON object", value=row, file=file, line=number, remedy='Write {"text": "…"}.'
        )
    return row


def _text(row: dict[str, Any], field: str, file: Path, number: int) -> str:
    if field not in row:
        known = f"{did_you_mean(field, row)} The line has {', '.join(map(repr, row)) or 'no keys'}."
        raise DataError(
            f"every line must have the field {field!r}",
            file=file,
            line=number,
            remedy=f"{known.strip()} Name the field in the source's options.",
        )
    text = row[field]
    if not isinstance(text, str):
        raise DataError(f"the field {field!r} must be a string", value=text, file=file, line=number, remedy="Quote it.")
    if not text.strip():
        raise DataError(
            f"the field {field!r} must hold text", value=text, file=file, line=number, remedy="Remove the line."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"the field {field!r} holds half of a surrogate pair, which is no character",
            value=text[error.start : error.end],
            file=file,
            line=number,
            remedy="Write the character itself, or both halves of its escape.",
        ) from error
    return text
