"""Documents by number: what a source gives and an objective reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import final

from transpect.data.skipping import NOTHING_SKIPPED, Skipped

Segmenter = Callable[[str], Sequence[str]]
"""Cuts a text into its words, in order; what stands between two words (spaces) is left out."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text, or a pair of texts.

    Attributes:
        text: the text; of a pair, the source.
        target: of a pair, what the source should become.
        record: of what is more than a text (a conversation, a preference), the JSON of it; then ``text`` is all that is
            said there.
        file: where it was read, for messages. Not compared.
        line: its first line there, from 1. Not compared.
    """

    text: str
    target: str | None = None
    file: str | None = field(default=None, compare=False)
    line: int | None = field(default=None, compare=False)
    record: str | None = None


class Documents(ABC):
    """A numbered row of documents, maybe without end. Any of them can be asked for at any time."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """How many there are; None is without end."""

    @property
    @abstractmethod
    def segmenter(self) -> Segmenter | None:
        """How the source itself cuts a text into words, where it knows."""

    @property
    def skipped(self) -> Skipped:
        """The lines that were passed over because they could not be read."""
        return NOTHING_SKIPPED

    @abstractmethod
    def __getitem__(self, index: int) -> Document:
        """Document ``index``, from 0."""

    @final
    def __iter__(self) -> Iterator[Document]:
        numbers = count() if self.size is None else range(self.size)
        return (self[number] for number in numbers)


@final
@dataclass(frozen=True)
class Listed(Documents):
    """Documents held in memory."""

    items: Sequence[Document]
    segments: Segmenter | None = None
    skipped: Skipped = NOTHING_SKIPPED

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def segmenter(self) -> Segmenter | None:
        return self.segments

    def __getitem__(self, index: int) -> Document:
        return self.items[index]


@final
@dataclass(frozen=True)
class TextsAlone(Documents):
    """Documents without their targets, where those are names and no texts."""

    documents: Documents

    @property
    def size(self) -> int | None:
        return self.documents.size

    @property
    def segmenter(self) -> Segmenter | None:
        return self.documents.segmenter

    def __getitem__(self, index: int) -> Document:
        return replace(self.documents[index], target=None)
