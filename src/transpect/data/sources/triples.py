"""Texts that belong together, and others that do not: for embeddings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

from transpect.base.errors import DataError
from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.base import FileSource
from transpect.data.sources.compression import ending
from transpect.data.sources.fields import no_such_field, text_of
from transpect.data.sources.files import lines
from transpect.data.sources.jsonl import Jsonl, parse_object


@final
@dataclass(frozen=True)
class Triples(FileSource, kind="triples"):
    """A text, one that belongs to it, and some that do not.

    Tab-separated lines have them in this order, at least two columns. JSON lines have an object each, in which the
    negatives are a text or a list of them.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        anchor: of JSON lines, the key of the text.
        positive: the key of the one that belongs to it.
        negatives: the key of those that do not; None is none.
        on_bad_line: ``error``, or ``skip`` and count it.
    """

    path: str
    anchor: str = "anchor"
    positive: str = "positive"
    negatives: str | None = "negative"
    on_bad_line: OnBadLine = "error"

    endings: ClassVar = (".tsv", *Jsonl.endings)

    def read(self, file: Path) -> Iterator[Document | DataError]:
        read = self._object if ending(file) in Jsonl.endings else _columns
        for number, line in lines(file):
            try:
                yield read(file, number, line)
            except DataError as error:
                yield error

    def _object(self, file: Path, number: int, line: str | DataError) -> Document:
        row, name = parse_object(file, number, line), str(file)
        texts = [text_of(row, key, name, number) for key in (self.anchor, self.positive)]
        if self.negatives is None:
            return _document(texts, file, number)
        if self.negatives not in row:
            raise no_such_field(self.negatives, row, name, number)
        given = row[self.negatives]
        others = given if isinstance(given, list) else [given]
        return _document([*texts, *(text_of({"text": text}, "text", name, number) for text in others)], file, number)


def _columns(file: Path, number: int, line: str | DataError) -> Document:
    if isinstance(line, DataError):
        raise line
    columns = line.split("\t")
    if len(columns) < 2 or not all(column.strip() for column in columns):
        raise DataError(
            "a line must have at least 2 columns of text, parted by tabs",
            value=line,
            file=file,
            line=number,
            remedy="Write a text, tab, one that belongs to it, and perhaps others that do not.",
        )
    return _document(columns, file, number)


def _document(texts: list[str], file: Path, number: int) -> Document:
    anchor, positive, *negatives = texts
    record = json.dumps({"negatives": negatives}, ensure_ascii=False) if negatives else None
    return Document(anchor, positive, str(file), number, record)
