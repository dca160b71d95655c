"""Epochs, or parts of epochs: what is encoded and planned as one, and read before the next is taken up.

Documents with an end are encoded once, and a pass is an epoch. Of documents without end a pass is the next `BLOCK` of
them; of token files it is the next part of an epoch, so that no more of a corpus is held than that part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, final

import numpy as np

from transpect.base.errors import ConfigError
from transpect.data.documents import Documents
from transpect.data.draws import Permutation
from transpect.data.objectives.base import Encoded, Task
from transpect.data.objectives.tokens import TakesTokens
from transpect.data.ragged import Ints
from transpect.data.tokens.shards import TokenDocuments
from transpect.text.tokenizer import Tokenizer

BLOCK: Final = 1024
"""How many documents of an endless row make a pass."""

PART_TOKENS: Final = 2**21
"""How many tokens of token files make a pass, about; in at least `FEWEST` documents and at most `MOST`."""
FEWEST: Final = 16
MOST: Final = 2**14


class Passes(ABC):
    """What is read pass by pass, from 0 on, without end."""

    @abstractmethod
    def encoded(self, number: int) -> Encoded:
        """The documents of a pass."""

    @abstractmethod
    def epoch(self, number: int) -> int:
        """How many times everything had been read before this pass; without an end, the pass itself."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """How many documents there are; None is without end."""

    @abstractmethod
    def in_order(self) -> Iterator[Encoded]:
        """All documents once, in their own order, in parts.

        Raises:
            ConfigError: they have no end.
        """

    @abstractmethod
    def update(self, digest: Any) -> None:
        """Add to a digest (of ``hashlib``) what tells these documents from others."""

    def told(self, number: int) -> str:
        """What a person should know of what was read before this pass; empty for nothing."""
        return ""


class Pool(Passes):
    """Documents that can be had by number."""

    @abstractmethod
    def of(self, numbers: Ints) -> Encoded:
        """The documents of these numbers, in their order."""

    @abstractmethod
    def mean_length(self) -> float:
        """How many tokens a document has, on average; at least 1."""


@final
class Whole(Pool):
    """Documents with an end, held as ids."""

    def __init__(self, documents: Documents, task: Task) -> None:
        self._encoded, self._size = task.encode(documents, documents.segmenter), documents.size

    def of(self, numbers: Ints) -> Encoded:
        return Encoded(tuple(stream.taken(numbers) for stream in self._encoded.streams), self._encoded.characters)

    def mean_length(self) -> float:
        return _mean_length(self._encoded)

    def encoded(self, number: int) -> Encoded:
        return self._encoded

    def epoch(self, number: int) -> int:
        return number

    @property
    def size(self) -> int | None:
        return self._size

    def in_order(self) -> Iterator[Encoded]:
        return iter((self._encoded,))

    def update(self, digest: Any) -> None:
        _add(digest, self._encoded)


@final
class Endless(Pool):
    """Documents without end, encoded block by block."""

    def __init__(self, documents: Documents, task: Task) -> None:
        self._documents, self._task = documents, task

    def encoded(self, number: int) -> Encoded:
        return self.of(np.arange(number * BLOCK, (number + 1) * BLOCK))

    def of(self, numbers: Ints) -> Encoded:
        documents = (self._documents[number] for number in numbers.tolist())
        return self._task.encode(documents, self._documents.segmenter)

    def mean_length(self) -> float:
        return _mean_length(self.of(np.arange(BLOCK)))

    def epoch(self, number: int) -> int:
        return number

    @property
    def size(self) -> None:
        return None

    def in_order(self) -> Iterator[Encoded]:
        raise ConfigError(
            "documents without end have no whole pass", remedy="Say how many: stories: 500 in the source."
        )

    def update(self, digest: Any) -> None:
        _add(digest, self.of(np.arange(16)))


@final
class Stored(Pool):
    """Token files, part by part. An epoch is one permutation of all documents, and a part is a run of it."""

    def __init__(self, documents: TokenDocuments, task: Task, tokenizer: Tokenizer, seed: int) -> None:
        documents.check_tokenizer(tokenizer)
        self._documents, self._task, self._seed = documents, taking_tokens(task), seed
        self._part = part_size(self.mean_length())
        self._parts = -(-documents.size // self._part)
        self.of(np.empty(0, np.int64))  # an option that needs the text is refused now

    def encoded(self, number: int) -> Encoded:
        epoch, part = divmod(number, self._parts)
        return self.of(Permutation(self.size, self._seed, epoch)(self._places(part)))

    def of(self, numbers: Ints) -> Encoded:
        return self._task.encode_tokens(*self._documents.rows(numbers))

    def mean_length(self) -> float:
        return max(1.0, self._documents.tokens / self._documents.size)

    def epoch(self, number: int) -> int:
        return number // self._parts

    @property
    def size(self) -> int:
        return self._documents.size

    def in_order(self) -> Iterator[Encoded]:
        return (self.of(self._places(part)) for part in range(self._parts))

    def update(self, digest: Any) -> None:
        digest.update(self._documents.digest)

    def _places(self, part: int) -> Ints:
        return np.arange(part * self._part, min((part + 1) * self._part, self.size))


def part_size(tokens_a_document: float) -> int:
    """How many documents of some mean length make a pass."""
    return int(np.clip(PART_TOKENS / tokens_a_document, FEWEST, MOST))


def taking_tokens(task: Task) -> TakesTokens:
    """The task, if it can do without text.

    Raises:
        ConfigError: it can't.
    """
    if not isinstance(task, TakesTokens):
        raise ConfigError(
            "this objective needs the text of its documents, which token files do not hold",
            value=type(task).__name__.removesuffix("Task").lower(),
            remedy="Read the text itself (data.train: {kind: text, …}), or take the objective causal or masked.",
        )
    return task


def _mean_length(encoded: Encoded) -> float:
    return max(1.0, len(encoded.streams[0].flat) / max(1, len(encoded.streams[0].lengths)))


def _add(digest: Any, encoded: Encoded) -> None:
    for stream in encoded.streams:
        digest.update(stream.starts.tobytes() + stream.flat.tobytes())
