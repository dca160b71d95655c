"""What every source is: documents, and their texts for a tokenizer to learn from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import ClassVar, final

from transpect.base.codec import Variant
from transpect.base.errors import ConfigError, DataError
from transpect.data.documents import Document, Documents, Listed
from transpect.data.skipping import BadLines, OnBadLine
from transpect.data.sources.files import find


class Source(Variant):
    """Where documents come from; a kind owns its options."""

    @abstractmethod
    def documents(self) -> Documents:
        """Read the source.

        Raises:
            DataError: nothing there, or a line that can't be read, with file, line and remedy.
        """

    def stream(self, bad: BadLines | None = None) -> Iterator[Document]:
        """The documents in their order, each read when its turn comes, so that a source may be larger than the memory.

        Args:
            bad: counts the lines that are passed over.

        Raises:
            DataError: as for `documents`.
        """
        return iter(self.documents())

    @final
    def texts(self, limit: int | None = None) -> Iterator[str]:
        """Every text of the first ``limit`` documents, targets included, for a tokenizer to be trained on.

        Raises:
            ConfigError: a source without end, and no limit.
            DataError: as for `documents`.
        """
        documents = self.documents()
        if documents.size is None and limit is None:
            raise ConfigError(
                f"a {self.kind} source without end has no last text",
                remedy="Say how many stories there are, or how many texts to take.",
            )
        for document in islice(documents, limit):
            yield document.text
            if document.target is not None:
                yield document.target


class Streamed(Source):
    """A source that is read document by document. A kind has the attributes ``path`` and ``on_bad_line``."""

    path: str
    on_bad_line: OnBadLine

    @abstractmethod
    def items(self) -> Iterator[Document | DataError]:
        """The documents in their order, and in their places what is wrong with lines that can't be read.

        Raises:
            DataError: what is no matter of a line.
        """

    @final
    def stream(self, bad: BadLines | None = None) -> Iterator[Document]:
        counted, empty = BadLines() if bad is None else bad, True
        before = counted.skipped.count
        for item in self.items():
            if isinstance(item, DataError):
                counted.take(item, self.on_bad_line)
            else:
                empty = False
                yield item
        if empty and counted.skipped.count > before:
            raise DataError(
                "a source must hold text, and every line of this one is bad", value=str(counted.skipped), file=self.path
            )
        if empty:
            raise DataError("a source must hold text; this one is blank", file=self.path)

    @final
    def documents(self) -> Listed:
        bad = BadLines()
        items = list(self.stream(bad))
        return Listed(items, skipped=bad.skipped)


class FileSource(Streamed):
    """A source that stands in files, read in the order of their names."""

    endings: ClassVar[tuple[str, ...]]
    """Of the files that are read in a folder."""

    @abstractmethod
    def read(self, file: Path) -> Iterator[Document | DataError]:
        """What `items` gives for one file."""

    @final
    def items(self) -> Iterator[Document | DataError]:
        for file in find(self.path, self.endings):
            yield from self.read(file)
