"""Plain text: a document a line, a paragraph, or a file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, final

from transpect.base.errors import DataError
from transpect.data.documents import Document, Listed
from transpect.data.sources.base import Source
from transpect.data.sources.files import find, read_text

TEXT_ENDINGS: Final = (".txt", ".text", ".md")

By = Literal["auto", "line", "paragraph", "file"]


@final
@dataclass(frozen=True)
class Text(Source, kind="text"):
    r"""UTF-8 text files. What is blank is no document.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        by: where a document ends: with the ``line``, at a blank line (``paragraph``), or with the ``file``.
            ``auto`` is, file by file, ``paragraph`` where a blank line stands between text, else ``line``.
    """

    path: str
    by: By = "auto"

    def documents(self) -> Listed:
        cut = [document for file in find(self.path, TEXT_ENDINGS) for document in _cut(file, self.by)]
        if not cut:
            raise DataError("a source must hold text; this one is blank", file=self.path)
        return Listed(cut)


def _cut(file: Path, by: By) -> list[Document]:
    text, name = read_text(file), str(file)
    if by == "file":
        return [Document(text, file=name, line=1)] if text.strip() else []
    numbered = enumerate(text.split("\n"), 1)
    blocks = [list(block) for full, block in groupby(numbered, lambda item: bool(item[1].strip())) if full]
    if by == "line" or (by == "auto" and len(blocks) == 1):
        return [Document(line, file=name, line=number) for block in blocks for number, line in block]
    return [Document("\n".join(line for _, line in block), file=name, line=block[0][0]) for block in blocks]
