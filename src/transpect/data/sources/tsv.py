"""Tab-separated pairs: source, tab, target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from transpect.base.errors import DataError
from transpect.data.documents import Document, Listed
from transpect.data.sources.base import Source
from transpect.data.sources.files import find, lines

TSV_ENDINGS: Final = (".tsv",)


@final
@dataclass(frozen=True)
class Tsv(Source, kind="tsv"):
    """Two columns parted by one tab, no header, no quoting. Blank lines are passed over.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        swap: the second column is the source and the first the target.
    """

    path: str
    swap: bool = False

    def documents(self) -> Listed:
        found = [
            self._document(file, number, line) for file in find(self.path, TSV_ENDINGS) for number, line in lines(file)
        ]
        if not found:
            raise DataError("a source must hold text; this one is blank", file=self.path)
        return Listed(found)

    def _document(self, file: Path, number: int, line: str) -> Document:
        columns = line.split("\t")
        if len(columns) != 2:
            raise DataError(
                f"a line must have 2 columns parted by one tab; it has {len(columns)}",
                value=line,
                file=file,
                line=number,
                remedy="Write source, tab, target; a tab inside a text must go.",
            )
        if not all(column.strip() for column in columns):
            raise DataError(
                "both columns of a line must hold text", value=line, file=file, line=number, remedy="Remove the line."
            )
        source, target = reversed(columns) if self.swap else columns
        return Document(source, target, str(file), number)
