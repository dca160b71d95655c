"""Words with tags: a word and its tag a line, or JSON lines with a list of words and a list of tags."""

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
from transpect.data.sources.compression import ending
from transpect.data.sources.fields import no_such_field
from transpect.data.sources.files import all_lines, lines
from transpect.data.sources.jsonl import Jsonl, parse_object


@final
@dataclass(frozen=True)
class Tagged(FileSource, kind="tagged"):
    """Texts whose words are tagged.

    Files of the kind of CoNLL have a word and its tag a line, in the first and the last column, parted by a tab or by
    spaces; a blank line ends a text, and a line that begins with ``-DOCSTART-`` says nothing. JSON lines have an object
    a text, with a list of words and one of tags.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        words: of JSON lines, the key of the words.
        tags: of JSON lines, the key of the tags.
        between: what stands between two words in the text; nothing, where the words are characters of Chinese.
        on_bad_line: ``error``, or ``skip`` the text and count it.
    """

    path: str
    words: str = "tokens"
    tags: str = "tags"
    between: str = " "
    on_bad_line: OnBadLine = "error"

    endings: ClassVar = (".conll", ".bio", ".iob2", ".tsv", ".txt", *Jsonl.endings)

    def read(self, file: Path) -> Iterator[Document | DataError]:
        rows = self._objects(file) if ending(file) in Jsonl.endings else _columns(file)
        for number, row in rows:
            yield row if isinstance(row, DataError) else self._document(row, file, number)

    def _objects(self, file: Path) -> Iterator[tuple[int, tuple[Any, Any] | DataError]]:
        for number, line in lines(file):
            try:
                row = parse_object(file, number, line)
                for field in (self.words, self.tags):
                    if field not in row:
                        raise no_such_field(field, row, str(file), number)
                yield number, (row[self.words], row[self.tags])
            except DataError as error:
                yield number, error

    def _document(self, row: tuple[Any, Any], file: Path, number: int) -> Document | DataError:
        words, tags = row
        if not (_are_words(words) and _are_words(tags) and len(words) == len(tags)):
            return DataError(
                "a text must have as many tags as words, all of them strings that aren't blank",
                value=f"{words} {tags}",
                file=file,
                line=number,
                remedy="Mend or remove it.",
            )
        record = json.dumps({"words": words, "tags": tags}, ensure_ascii=False)
        return Document(self.between.join(words), None, str(file), number, record)


def _are_words(given: object) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(word, str) and word.strip() for word in given)


def _columns(file: Path) -> Iterator[tuple[int, tuple[list[str], list[str]] | DataError]]:
    """The texts of a file of columns, each with the number of its first line."""
    first, words, tags = 0, list[str](), list[str]()
    wrong: DataError | None = None
    for number, line in _with_end(file):
        if isinstance(line, str) and (not line.strip() or line.startswith("-DOCSTART-")):
            if words or wrong:
                yield first, wrong or (words, tags)
            words, tags, wrong = [], [], None
            continue
        first = number if not words and wrong is None else first
        if isinstance(line, DataError):
            wrong = wrong or line
            continue
        columns = line.split("\t") if "\t" in line else line.split()
        if len(columns) < 2:
            wrong = wrong or DataError(
                "a line must have a word and its tag, parted by a tab or spaces",
                value=line,
                file=file,
                line=number,
                remedy="Write word, tab, tag; a blank line ends a text.",
            )
            continue
        words.append(columns[0])
        tags.append(columns[-1].strip())


def _with_end(file: Path) -> Iterator[tuple[int, str | DataError]]:
    """The lines, and a blank one after the last."""
    number = 0
    for number, line in all_lines(file):
        yield number, line
    yield number + 1, ""
