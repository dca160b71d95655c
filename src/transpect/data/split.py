"""Hold some documents out: by a hash of what they say, so that every machine and every resume holds out the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from hashlib import blake2b

from transpect.base.errors import ConfigError, DataError
from transpect.data.documents import Document, Documents, Listed


class Divisible(ABC):
    """Documents that part themselves, by the same rule as `split`."""

    @abstractmethod
    def divided(self, fraction: float, seed: int) -> tuple[Documents, Documents]:
        """(train, valid).

        Raises:
            ConfigError: they can't be parted.
            DataError: there is too little to part.
        """


def split(documents: Documents, fraction: float, seed: int = 0) -> tuple[Documents, Documents]:
    """Part documents into (train, valid), each in the order of the source.

    The distinct documents are ranked by blake2b(seed, text, target); the lowest round(fraction · count) of them, at
    least one and at most all but one, are valid. Equal documents have equal ranks, so none is on both sides. A document
    that stands alone is cut instead: the end of its text is valid, from the line that starts nearest to the fraction
    where it has several lines.

    Raises:
        ConfigError: ``fraction`` is not between 0 and 1, or the documents have no end.
        DataError: there is too little to part.
    """
    if not 0 < fraction < 1:
        raise ConfigError("the share of valid documents must be between 0 and 1", value=fraction, remedy="Take 0.05.")
    if isinstance(documents, Divisible):
        return documents.divided(fraction, seed)
    if documents.size is None:
        raise ConfigError(
            "documents without end have no last fraction to hold out",
            remedy="Name a valid source with another seed, e.g. {kind: fable, seed: 1, stories: 500}.",
        )
    ranks = {document: _rank(document, seed) for document in documents}
    if len(ranks) == 1:
        return _cut(documents, fraction)
    held = min(max(1, round(fraction * len(ranks))), len(ranks) - 1)
    limit = sorted(ranks.values())[held - 1]
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        parts[ranks[document] <= limit].append(document)
    train, valid = parts
    return Listed(train, documents.segmenter, documents.skipped), Listed(valid, documents.segmenter)


def _rank(document: Document, seed: int) -> bytes:
    target = "" if document.target is None else f"\0{document.target}"
    return blake2b(f"{seed}\0{document.text}{target}".encode(), digest_size=16).digest()


def _cut(documents: Documents, fraction: float) -> tuple[Listed, Listed]:
    document = documents[0]
    text = document.text
    first, end = len(text) - len(text.lstrip()), len(text.rstrip())
    at = round(len(text) * (1 - fraction))
    line_starts = [i + 1 for i, char in enumerate(text[:end]) if char == "\n" and i > first]
    at = min(line_starts, key=lambda start: abs(start - at), default=at)
    train, valid = text[:at], text[at:]
    if document.target is not None or not train.strip() or not valid.strip():
        raise DataError(
            "to hold a share out there must be two different documents, or one of some length",
            value=text,
            file=document.file,
            line=document.line,
            remedy="Name a valid source in the recipe instead of a fraction.",
        )
    line = None if document.line is None else document.line + train.count("\n")
    return (
        Listed([replace(document, text=train)], documents.segmenter, documents.skipped),
        Listed([replace(document, text=valid, line=line)], documents.segmenter),
    )
