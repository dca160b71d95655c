"""Sources one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from transpect.base.errors import ConfigError
from transpect.data.documents import Document, Listed
from transpect.data.skipping import BadLines
from transpect.data.sources.base import Source


@final
@dataclass(frozen=True)
class Joined(Source, kind="joined"):
    """The documents of several sources, in the order of the sources.

    Attributes:
        parts: the sources, each with an end.
    """

    parts: tuple[Source, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("joined sources must be at least one")

    def stream(self, bad: BadLines | None = None) -> Iterator[Document]:
        return (document for part in self.parts for document in finite(part).stream(bad))

    def documents(self) -> Listed:
        bad = BadLines()
        return Listed(list(self.stream(bad)), skipped=bad.skipped)


def finite(source: Source) -> Source:
    """The source itself.

    Raises:
        ConfigError: it has no end.
    """
    # what is read as it is streamed has an end; the others know without reading
    if type(source).stream is Source.stream and source.documents().size is None:
        raise ConfigError(
            "these documents must have an end", value=source.kind, remedy="Say how many, e.g. stories: 500."
        )
    return source
