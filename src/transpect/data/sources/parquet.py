"""Parquet: a document a row, the text in one of its columns. Read by ``pyarrow``, a row group at a time at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, final

from transpect.base.errors import DataError, first_line
from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.base import FileSource
from transpect.data.sources.fields import document_of, no_such_field

ROWS: Final = 1024
"""How many rows are turned into Python's strings at a time."""


@final
@dataclass(frozen=True)
class Parquet(FileSource, kind="parquet"):
    """One document a row; other columns are not read.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        field: the column of the text; of pairs, of the source.
        target: of pairs, the column of the target; None is single texts.
        on_bad_line: ``error``, or ``skip`` and count it. A line is a row here, counted from 1.
    """

    path: str
    field: str = "text"
    target: str | None = None
    on_bad_line: OnBadLine = "error"

    endings: ClassVar = (".parquet",)

    def read(self, file: Path) -> Iterator[Document | DataError]:
        arrow = _arrow(file)
        try:
            with arrow.parquet.ParquetFile(file) as table:
                names = table.schema_arrow.names
                columns = [name for name in (self.field, self.target) if name is not None]
                for name in columns:
                    if name not in names:
                        raise no_such_field(name, dict.fromkeys(names), str(file), None)
                number = 0
                for batch in table.iter_batches(ROWS, columns=columns):
                    for row in batch.to_pylist():
                        number += 1
                        yield self._document(row, file, number)
        except (arrow.ArrowException, OSError) as error:
            raise DataError(
                f"not a Parquet file, or a damaged one: {first_line(error)}", file=file, remedy="Copy or make it again."
            ) from error

    def _document(self, row: dict[str, Any], file: Path, number: int) -> Document | DataError:
        try:
            return document_of(row, self.field, self.target, str(file), number)
        except DataError as error:
            return error


def _arrow(file: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            "a Parquet file is read by the package pyarrow, which is not installed",
            file=file,
            remedy="pip install 'transpect[data]'.",
        ) from error
    return pyarrow
