"""Token files as documents by number: mapped into memory, so that only what is looked at is read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from transpect.base.errors import ConfigError, DataError
from transpect.data.documents import Document, Documents
from transpect.data.draws import mixed
from transpect.data.ragged import Ints, Ragged
from transpect.data.skipping import Skipped
from transpect.data.split import Divisible
from transpect.data.tokens.layout import (
    TOKENIZER,
    WHOLE,
    Manifest,
    fingerprint,
    mapped,
    read_index,
    read_manifest,
)
from transpect.text.tokenizer import Tokenizer


@final
@dataclass(frozen=True, eq=False)
class TokenDocuments(Documents, Divisible):
    """The documents of a directory of token files, or some of them.

    Attributes:
        folder: the directory.
        manifest: of it.
        chosen: the numbers of these documents in the directory; None is all of them.
    """

    folder: Path
    manifest: Manifest
    chosen: Ints | None = None

    @property
    def size(self) -> int:
        return self.manifest.documents if self.chosen is None else len(self.chosen)

    @property
    def segmenter(self) -> None:
        return None

    @property
    def skipped(self) -> Skipped:
        return Skipped(self.manifest.bad_lines)

    def __getitem__(self, index: int) -> Document:
        raise ConfigError(
            "these documents are tokens, and text is asked for",
            value=str(self.folder),
            remedy=f"Open the tokenizer that they were made with, tokenizer.path: {self.folder / TOKENIZER}, or read "
            "the text itself.",
        )

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuse another tokenizer than the files were made with.

        Raises:
            ConfigError: its vocabulary, rules or special tokens are others.
        """
        if fingerprint(tokenizer) != self.manifest.tokenizer:
            raise ConfigError(
                "token files must be read with the tokenizer that they were made with",
                value=str(self.folder),
                remedy=f"Set tokenizer.path: {self.folder / TOKENIZER}, or prepare the text anew with yours.",
            )

    def rows(self, numbers: Ints) -> tuple[Ragged, int]:
        """The ids of documents, in the order of ``numbers``, and how many characters their texts have."""
        places = numbers if self.chosen is None else self.chosen[numbers]
        firsts = self._firsts
        which = np.searchsorted(firsts, places, side="right") - 1
        spans = np.empty((len(places), 3), np.int64)  # first token, token after the last, characters
        for shard in np.unique(which).tolist():
            of_shard = which == shard
            index, local = self._indices[shard], places[of_shard] - firsts[shard]
            begin, end = index[local], index[local + 1]
            spans[of_shard] = np.stack([begin[:, 0], end[:, 0], end[:, 1] - begin[:, 1]], 1)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(spans[:, 1] - spans[:, 0])])
        flat = np.empty(int(starts[-1]), self.manifest.dtype)
        for at, shard, (begin, end, _) in zip(starts.tolist(), which.tolist(), spans.tolist(), strict=False):
            flat[at : at + end - begin] = self._ids[shard][begin:end]
        return Ragged(flat, starts), int(spans[:, 2].sum())

    @property
    def tokens(self) -> int:
        """How many tokens the documents have together; of some, about."""
        return round(self.manifest.tokens * self.size / max(1, self.manifest.documents))

    @property
    def digest(self) -> bytes:
        """Of all that they hold."""
        chosen = b"" if self.chosen is None else self.chosen.tobytes()
        return sha256(self.manifest.digest.encode() + chosen).digest()

    def divided(self, fraction: float, seed: int) -> tuple[TokenDocuments, TokenDocuments]:
        """As `split`, but ranks are a function of the texts' digests: no token is read. Documents of equal digests are
        on one side; what is held out are the documents up to the rank of the one that fills the share."""
        digests = np.concatenate([index[:-1, 2] for index in self._indices])
        if self.chosen is not None:
            digests = digests[self.chosen]
        numbers = np.arange(self.manifest.documents) if self.chosen is None else self.chosen
        key = np.uint64(int.from_bytes(sha256(str(seed).encode()).digest()[:8], "little"))
        ranks = mixed(digests.view(np.uint64) ^ key)
        distinct = np.unique(ranks)
        if len(distinct) < 2:
            raise DataError(
                "to hold a share out there must be two different documents",
                value=len(distinct),
                file=self.folder,
                remedy="Name a valid source in the recipe instead of a fraction.",
            )
        held = min(max(1, round(fraction * len(distinct))), len(distinct) - 1)
        valid = ranks <= distinct[held - 1]
        return replace(self, chosen=numbers[~valid]), replace(self, chosen=numbers[valid])

    @cached_property
    def _firsts(self) -> Ints:
        """The number of each shard's first document, and of the one after the last."""
        return np.cumsum([0, *(shard.documents for shard in self.manifest.shards)], dtype=np.int64)

    @cached_property
    def _indices(self) -> list[NDArray[np.int64]]:
        return [read_index(self.folder, shard) for shard in self.manifest.shards]

    @cached_property
    def _ids(self) -> list[NDArray[Any]]:
        dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        return [mapped(self.folder / f"{shard.name}.bin", dtype, shard.tokens) for shard in self.manifest.shards]


def open_tokens(folder: str | Path) -> TokenDocuments:
    """The documents of a directory of token files. The files' lengths are checked, not what they hold (see `verify`).

    Raises:
        DataError: no such directory, an unfinished one, or files that are missing or of another length.
    """
    documents = TokenDocuments(Path(folder), read_manifest(Path(folder)))
    if not documents.size:
        raise DataError("token files must hold a document", file=folder)
    assert len(documents._ids) == len(documents._indices)
    return documents


def verify(folder: str | Path) -> Manifest:
    """Read every file of a directory and compare its SHA-256 with the manifest's.

    Raises:
        DataError: as `open_tokens`, or a file that holds something else.
    """
    documents = open_tokens(folder)
    for shard in documents.manifest.shards:
        for name, wanted in ((f"{shard.name}.bin", shard.tokens_sha256), (f"{shard.name}.idx", shard.index_sha256)):
            with (documents.folder / name).open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != wanted:
                raise DataError(
                    "a token file is not what was written",
                    value=f"SHA-256 {found}",
                    file=documents.folder / name,
                    remedy=WHOLE,
                )
    return documents.manifest
