"""Tables with named columns: comma-separated values (RFC 4180), or any other delimiter."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, final

from transpect.base.errors import ConfigError, DataError
from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.base import FileSource
from transpect.data.sources.compression import opened
from transpect.data.sources.fields import document_of, no_such_field
from transpect.data.sources.files import not_utf8

LONGEST: Final = 2**31 - 1
"""Of a field, in characters. The library's own limit of 131,072 is for fields that are no documents."""


@final
@dataclass(frozen=True)
class Csv(FileSource, kind="csv"):
    """A document a row. A text in double quotes may hold delimiters, line ends, and double quotes written twice.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        field: the column of the text; of pairs, of the source.
        target: of pairs, the column of the target; None is single texts.
        delimiter: one character; a tab is ``"\\t"``.
        columns: the names of the columns, for files without a header; None reads them from the first row of each.
        on_bad_line: ``error``, or ``skip`` and count it.
    """

    path: str
    field: str = "text"
    target: str | None = None
    delimiter: str = ","
    columns: tuple[str, ...] | None = None
    on_bad_line: OnBadLine = "error"

    endings: ClassVar = (".csv",)

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or self.delimiter in '\r\n"':
            raise ConfigError("a delimiter must be one character, and no quote", value=self.delimiter)
        for name in (self.field, self.target):
            if self.columns is not None and name is not None and name not in self.columns:
                raise ConfigError("the fields must be among the columns", value=name)

    def read(self, file: Path) -> Iterator[Document | DataError]:
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
        decoded = _Decoded(file)
        rows = csv.reader(decoded, delimiter=self.delimiter, strict=True)
        header = self.columns
        while True:
            first = rows.line_num + 1
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                decoded.wrong.clear()
                yield DataError(
                    f"a row must be comma-separated values: {error}",
                    file=file,
                    line=first,
                    remedy="A quote inside a quoted text is written twice.",
                )
                continue
            if decoded.wrong:
                yield decoded.wrong[0]
                decoded.wrong.clear()
            elif len(row) < 2 and not "".join(row).strip():
                continue
            elif header is None:
                header = tuple(row)
                for name in (self.field, self.target):
                    if name is not None and name not in header:
                        raise no_such_field(name, dict.fromkeys(header), str(file), None)
            else:
                yield self._document(header, row, file, first)

    def _document(self, header: tuple[str, ...], row: list[str], file: Path, line: int) -> Document | DataError:
        if len(row) != len(header):
            return DataError(
                f"a row must have {len(header)} columns; it has {len(row)}",
                value=self.delimiter.join(row),
                file=file,
                line=line,
                remedy="A text with a delimiter or a line end in it stands in double quotes.",
            )
        try:
            return document_of(dict(zip(header, row, strict=True)), self.field, self.target, str(file), line)
        except DataError as error:
            return error


class _Decoded:
    """The lines of a file for the reader of rows, which must be given every line: where one is no UTF-8, what is wrong
    is put aside."""

    def __init__(self, file: Path) -> None:
        self.wrong: list[DataError] = []
        self._lines = self._read(file)

    def __iter__(self) -> Iterator[str]:
        return self._lines

    def _read(self, file: Path) -> Iterator[str]:
        offset = 0
        with opened(file) as stream:
            for number, data in enumerate(stream, 1):
                start = 3 if not offset and data.startswith(b"\xef\xbb\xbf") else 0
                try:
                    text = data[start:].decode()
                except UnicodeDecodeError as error:
                    at = start + error.start
                    self.wrong.append(not_utf8(file, number, offset + at, data[at : at + 4]))
                    text = data[start:].decode(errors="replace")
                yield text
                offset += len(data)
