"""JSON lines: an object a line, the text in one of its fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from transpect.base.errors import DataError
from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.base import FileSource
from transpect.data.sources.fields import document_of
from transpect.data.sources.files import lines


@final
@dataclass(frozen=True)
class Jsonl(FileSource, kind="jsonl"):
    """One JSON object a line. Blank lines are passed over; a blank text is an error.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        field: the key of the text; of pairs, of the source.
        target: of pairs, the key of the target; None is single texts.
        on_bad_line: ``error``, or ``skip`` and count it.
    """

    path: str
    field: str = "text"
    target: str | None = None
    on_bad_line: OnBadLine = "error"

    endings: ClassVar = (".jsonl", ".ndjson")

    def read(self, file: Path) -> Iterator[Document | DataError]:
        for number, line in lines(file):
            try:
                row = parse_object(file, number, line)
                yield document_of(row, self.field, self.target, str(file), number)
            except DataError as error:
                yield error


def parse_object(file: Path, number: int, line: str | DataError) -> dict[str, Any]:
    """The object of a line.

    Raises:
        DataError: the line is none.
    """
    if isinstance(line, DataError):
        raise line
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
