"""Token files as a source: a corpus that was encoded before, however large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from transpect.data.sources.base import Source
from transpect.data.tokens.shards import TokenDocuments, open_tokens


@final
@dataclass(frozen=True)
class Tokens(Source, kind="tokens"):
    """A directory that `transpect data prepare` wrote.

    What is read is mapped from the disk, and an epoch is taken up part by part, each in an order of its own, so a
    corpus may be larger than the memory. The tokenizer must be the one that the files were made with. Objectives that
    need the text itself refuse it.

    Attributes:
        path: the directory.
    """

    path: str

    def documents(self) -> TokenDocuments:
        return open_tokens(self.path)
