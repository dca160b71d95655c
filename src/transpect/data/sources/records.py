"""Sources whose documents are more than a text: a JSON record each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, final

from transpect.base.errors import DataError
from transpect.data.documents import Document
from transpect.data.sources.base import FileSource
from transpect.data.sources.rows import ROW_ENDINGS, Row, rows


class RowReader(ABC):
    """Makes documents of the rows of one file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @abstractmethod
    def document(self, row: Row, line: int) -> Document:
        """The document of a row.

        Raises:
            DataError: the row is none, with file and line.
        """

    @final
    def error(self, rule: str, row: Row, line: int, remedy: str) -> DataError:
        """What is wrong with a row, with its keys and its place."""
        return DataError(rule, value=sorted(row), file=self.file, line=line, remedy=remedy)


class Records(FileSource):
    """Rows of JSON lines, or of a JSON array."""

    endings: ClassVar = ROW_ENDINGS

    @abstractmethod
    def reader(self, file: Path) -> RowReader:
        """What makes documents of the rows of a file."""

    @final
    def read(self, file: Path) -> Iterator[Document | DataError]:
        reader = self.reader(file)
        for number, row in rows(file):
            try:
                if isinstance(row, DataError):
                    raise row
                yield reader.document(row, number)
            except DataError as error:
                yield error
