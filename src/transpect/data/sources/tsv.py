"""Tab-separated pairs: source, tab, target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

from transpect.base.errors import DataError
from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.base import FileSource
from transpect.data.sources.files import lines


@final
@dataclass(frozen=True)
class Tsv(FileSource, kind="tsv"):
    """Two columns parted by one tab, no header, no quoting. Blank lines are passed over.

    A table with a header, or with other columns, is ``{kind: csv, delimiter: "\\t"}``.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        swap: the second column is the source and the first the target.
        on_bad_line: ``error``, or ``skip`` and count it.
    """

    path: str
    swap: bool = False
    on_bad_line: OnBadLine = "error"

    endings: ClassVar = (".tsv",)

    def read(self, file: Path) -> Iterator[Document | DataError]:
        for number, line in lines(file):
            yield line if isinstance(line, DataError) else self._document(file, number, line)

    def _document(self, file: Path, number: int, line: str) -> Document | DataError:
        columns = line.split("\t")
        if len(columns) != 2:
            return DataError(
                f"a line must have 2 columns parted by one tab; it has {len(columns)}",
                value=line,
                file=file,
                line=number,
                remedy="Write source, tab, target; a tab inside a text must go.",
            )
        if not all(column.strip() for column in columns):
            return DataError(
                "both columns of a line must hold text", value=line, file=file, line=number, remedy="Remove the line."
            )
        source, target = reversed(columns) if self.swap else columns
        return Document(source, target, str(file), number)
