"""What every source is: documents, and their texts for a tokenizer to learn from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import final

from transpect.base.codec import Variant
from transpect.base.errors import ConfigError
from transpect.data.documents import Documents


class Source(Variant):
    """Where documents come from; a kind owns its options."""

    @abstractmethod
    def documents(self) -> Documents:
        """Read the source.

        Raises:
            DataError: nothing there, or a line that can't be read, with file, line and remedy.
        """

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
