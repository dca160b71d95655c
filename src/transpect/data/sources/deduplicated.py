"""A source without its duplicates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import final

from transpect.base.errors import ConfigError
from transpect.data.documents import Document, Listed
from transpect.data.near_duplicates import near_duplicates
from transpect.data.skipping import BadLines
from transpect.data.sources.base import Source
from transpect.data.sources.joined import finite


@final
@dataclass(frozen=True)
class Deduplicated(Source, kind="deduplicated"):
    """Of equal documents the first; with ``near``, also of nearly equal ones.

    Two documents are nearly equal where the Jaccard similarity of their sets of character n-grams, |A ∩ B| / |A ∪ B|,
    is at least ``near``; case and runs of spaces count for nothing. In the order of the source, a document is dropped
    where it is nearly equal to one that was kept. The source is then read three times (see `near_duplicates`).

    Attributes:
        source: with an end.
        near: the similarity; None drops only documents that are equal to the letter.
        ngram: n.
    """

    source: Source
    near: float | None = None
    ngram: int = 5

    def __post_init__(self) -> None:
        if self.near is not None and not 0 < self.near <= 1:
            raise ConfigError("near must be above 0 and at most 1", value=self.near, remedy="Take 0.8.")
        if self.ngram < 1:
            raise ConfigError("ngram must be at least 1", value=self.ngram)

    def stream(self, bad: BadLines | None = None) -> Iterator[Document]:
        source = finite(self.source)
        if self.near is None:
            return _distinct(source.stream(bad))
        dropped = near_duplicates(lambda: _distinct(source.stream()), self.near, self.ngram)
        return (doc for number, doc in enumerate(_distinct(source.stream(bad))) if number not in dropped)

    def documents(self) -> Listed:
        bad = BadLines()
        return Listed(list(self.stream(bad)), skipped=bad.skipped)


def _distinct(documents: Iterator[Document]) -> Iterator[Document]:
    """Each document that is equal to none before it: 16 bytes of each are remembered."""
    seen: set[bytes] = set()
    for document in documents:
        said = json.dumps([document.text, document.target, document.record])
        digest = blake2b(said.encode(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            yield document
