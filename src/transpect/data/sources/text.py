"""Plain text: a document a line, a paragraph, or a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Literal, final

from transpect.base.errors import DataError
from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.base import FileSource
from transpect.data.sources.files import Line, all_lines, lines, read_text

By = Literal["auto", "line", "paragraph", "file"]


@final
@dataclass(frozen=True)
class Text(FileSource, kind="text"):
    r"""UTF-8 text files. What is blank is no document.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        by: where a document ends: with the ``line``, at a blank line (``paragraph``), or with the ``file``.
            ``auto`` is, file by file, ``paragraph`` where a blank line stands between text, else ``line``.
        on_bad_line: ``error``, or ``skip`` and count it: with the line goes the document that it is a part of.
    """

    path: str
    by: By = "auto"
    on_bad_line: OnBadLine = "error"

    endings: ClassVar = (".txt", ".text", ".md")

    def read(self, file: Path) -> Iterator[Document | DataError]:
        match self.by:
            case "file":
                return _whole(file)
            case "line":
                return _by_line(file)
            case "paragraph":
                return _by_paragraph(file)
            case "auto":
                return _by_paragraph(file) if _has_paragraphs(file) else _by_line(file)


def _whole(file: Path) -> Iterator[Document | DataError]:
    try:
        text = read_text(file)
    except DataError as error:
        if error.line is None:  # no matter of a line
            raise
        yield error
        return
    if text.strip():
        yield Document(text, file=str(file), line=1)


def _by_line(file: Path) -> Iterator[Document | DataError]:
    for number, line in lines(file):
        yield line if isinstance(line, DataError) else Document(line, file=str(file), line=number)


def _by_paragraph(file: Path) -> Iterator[Document | DataError]:
    for full, block in groupby(all_lines(file), _is_full):
        if not full:
            continue
        numbered = list(block)
        texts = [line for _, line in numbered if isinstance(line, str)]
        wrong = [line for _, line in numbered if isinstance(line, DataError)]
        yield wrong[0] if wrong else Document("\n".join(texts), file=str(file), line=numbered[0][0])


def _has_paragraphs(file: Path) -> bool:
    """Whether a blank line stands between text."""
    changes = (full for full, _ in groupby(all_lines(file), _is_full))
    return sum(changes) > 1


def _is_full(line: Line) -> bool:
    return isinstance(line[1], DataError) or bool(line[1].strip())
