"""What a source holds, counted while it is read once: what grows with a corpus is a set of one number for each distinct
text."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, final

import numpy as np

from transpect.data.documents import Document
from transpect.data.ragged import Ints
from transpect.data.skipping import NOTHING_SKIPPED, BadLines, Skipped
from transpect.data.sources.base import Source
from transpect.data.tokens.layout import read_index, text_digest
from transpect.data.tokens.shards import TokenDocuments
from transpect.text.tokenizer import Tokenizer

SAMPLE = 4096
"""Of so many characters of each text the scripts are counted."""


@final
@dataclass
class Statistics:
    """Counts.

    Attributes:
        documents: how many.
        characters: of their texts, targets included.
        tokens: of their texts, targets included; None without a tokenizer.
        duplicates: documents that are equal to one before them.
        lengths: how many documents have from 2ⁱ to 2ⁱ⁺¹ − 1 tokens (without a tokenizer: characters), by i; empty ones
            by −1.
        longest: document, in tokens or characters.
        scripts: letters by script, of the first `SAMPLE` characters of each text.
        skipped: bad lines.
    """

    documents: int = 0
    characters: int = 0
    tokens: int | None = None
    duplicates: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    longest: int = 0
    scripts: Counter[str] = field(default_factory=Counter)
    skipped: Skipped = NOTHING_SKIPPED

    def as_dict(self) -> dict[str, Any]:
        """The counts as JSON data."""
        ranges = {f"{2**i if i >= 0 else 0}": self.lengths[i] for i in sorted(self.lengths)}
        return {
            "documents": self.documents,
            "characters": self.characters,
            **({} if self.tokens is None else {"tokens": self.tokens}),
            "duplicates": self.duplicates,
            "bad_lines": self.skipped.count,
            "longest": self.longest,
            "lengths": ranges,
            "scripts": dict(self.scripts.most_common()),
        }


def statistics(source: Source, tokenizer: Tokenizer | None = None) -> Statistics:
    """Count what a source with an end holds.

    Raises:
        DataError: as the source's.
    """
    documents = source.documents() if source.kind == "tokens" else None
    if isinstance(documents, TokenDocuments):
        return _of_tokens(documents)
    found, bad = Statistics(tokens=None if tokenizer is None else 0), BadLines()
    seen: set[bytes] = set()
    for part in _in_parts(source.stream(bad)):
        texts = [document.text if document.target is None else _joined(document) for document in part]
        sizes = [len(document.text) + len(document.target or "") for document in part]
        found.characters += sum(sizes)
        if tokenizer is not None:
            sizes = _tokens(part, tokenizer)
            found.tokens = (found.tokens or 0) + sum(sizes)
        _count(found, np.array(sizes, np.int64))
        digests = [text_digest(text) for text in texts]
        found.duplicates += len(digests) - len(set(digests) - seen)
        seen.update(digests)
        for text in texts:
            found.scripts.update(filter(None, map(script, text[:SAMPLE])))
    found.skipped = bad.skipped
    return found


@lru_cache(maxsize=2**16)
def script(character: str) -> str:
    """The script of a letter, by the first word of its Unicode name: LATIN, CJK, CYRILLIC …; empty for what is none."""
    if not character.isalpha():
        return ""
    return unicodedata.name(character, "OTHER").partition(" ")[0]


def _of_tokens(documents: TokenDocuments) -> Statistics:
    """From the indices alone."""
    manifest = documents.manifest
    found = Statistics(tokens=manifest.tokens, skipped=documents.skipped)
    digests: list[Ints] = []
    for shard in manifest.shards:
        index = read_index(documents.folder, shard)
        _count(found, np.diff(index[:, 0]))
        digests.append(np.array(index[:-1, 2]))
        found.characters += shard.characters
    found.duplicates = found.documents - len(np.unique(np.concatenate(digests)))
    return found


def _count(found: Statistics, sizes: Ints) -> None:
    found.documents += len(sizes)
    found.longest = max(found.longest, int(sizes.max(initial=0)))
    kinds, counts = np.unique([int(size).bit_length() - 1 for size in sizes], return_counts=True)
    found.lengths.update(dict(zip(kinds.tolist(), counts.tolist(), strict=True)))


def _tokens(part: list[Document], tokenizer: Tokenizer) -> list[int]:
    sizes = [len(row) for row in tokenizer.encode_batch([d.text for d in part], parse_special=False)]
    targets = tokenizer.encode_batch([d.target or "" for d in part], parse_special=False)
    return [size + len(row) for size, row in zip(sizes, targets, strict=True)]


def _joined(document: Document) -> str:
    return f"{document.text}\0{document.target}"


def _in_parts(documents: Iterable[Document], size: int = 512) -> Iterator[list[Document]]:
    part: list[Document] = []
    for document in documents:
        part.append(document)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
