"""What stands in a directory of token files, and what its manifest says."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError, DataError
from transpect.base.files import read_json_file
from transpect.text.tokenizer import Tokenizer

FORMAT: Final = 1
MANIFEST, PROGRESS, TOKENIZER = "manifest.json", "progress.json", "tokenizer"
COLUMNS: Final = 3
"""Of an index: first token, first character, digest."""
WHOLE: Final = "The directory is damaged or copied in part: copy or prepare it again."


@dataclass(frozen=True)
class Shard:
    """One pair of files.

    Attributes:
        name: of the files, without their endings.
        documents: how many.
        tokens: how many.
        characters: of their texts.
        tokens_sha256: of ``NAME.bin``.
        index_sha256: of ``NAME.idx``.
    """

    name: str
    documents: int
    tokens: int
    characters: int
    tokens_sha256: str
    index_sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a directory of token files is.

    Attributes:
        format: of the directory.
        dtype: of the ids, uint16 or uint32.
        tokenizer: its `fingerprint`.
        source: what was read, as in a recipe.
        shard_tokens: a shard is closed with the document that reaches so many tokens.
        shards: in order.
        bad_lines: how many lines were passed over.
    """

    format: int
    dtype: str
    tokenizer: str
    source: dict[str, Any]
    shard_tokens: int
    shards: tuple[Shard, ...] = field(default=())
    bad_lines: int = 0

    @property
    def documents(self) -> int:
        """How many there are."""
        return sum(shard.documents for shard in self.shards)

    @property
    def tokens(self) -> int:
        """How many there are."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def digest(self) -> str:
        """Of all files together."""
        parts = [f"{shard.tokens_sha256} {shard.index_sha256}" for shard in self.shards]
        return sha256("\n".join([self.dtype, self.tokenizer, *parts]).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a directory.

    Raises:
        DataError: there is none, it is damaged, or of another version's format.
    """
    file = folder / MANIFEST
    if not file.is_file():
        unfinished = (folder / PROGRESS).is_file()
        raise DataError(
            "token files are complete when their manifest is there" if unfinished else "this directory has no manifest",
            file=file,
            remedy="Run the same `transpect data prepare` again: it goes on where it was stopped."
            if unfinished
            else "Make it with `transpect data prepare`.",
        )
    return parse_manifest(file)


def parse_manifest(file: Path) -> Manifest:
    """What a manifest says, or the one of a directory in the making.

    Raises:
        DataError: it is damaged, or of another version's format.
    """
    data = read_json_file(file, DataError)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise DataError(f"token files must have format {FORMAT}", value=found, file=file)
    try:
        return from_data(Manifest, data)
    except ConfigError as error:
        raise DataError(f"a damaged manifest: {error.rule}", value=error.value, file=file, remedy=WHOLE) from error


def write_json(file: Path, data: Any) -> None:
    """Replace a file as a whole, on the disk before it has its name."""
    fresh = file.with_name(f".{file.name}.new")
    with fresh.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(data, ensure_ascii=False, indent=1) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)


def manifest_data(manifest: Manifest) -> dict[str, Any]:
    """A manifest as JSON data."""
    return {**to_data(manifest), "source": manifest.source}


def fingerprint(tokenizer: Tokenizer) -> str:
    """SHA-256 of what decides a text's ids and their roles: vocabulary, rules and special tokens."""
    rules = json.loads(tokenizer.backend.to_str())
    rules = {name: rules.get(name) for name in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    data = {"rules": rules, "roles": dict(tokenizer.special_tokens)}
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def text_digest(text: str) -> bytes:
    """8 bytes by which equal texts are known."""
    return blake2b(text.encode(), digest_size=8).digest()


def ids_dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    """The smallest unsigned type for every id."""
    return np.dtype("<u2" if tokenizer.vocab_size <= 2**16 else "<u4")


def mapped(file: Path, dtype: Any, count: int) -> NDArray[Any]:
    """The numbers of a file, read from the disk when they are looked at.

    Raises:
        DataError: the file is not there, or is not as long as it must be.
    """
    size = count * np.dtype(dtype).itemsize
    if not file.is_file() or file.stat().st_size != size:
        found = file.stat().st_size if file.is_file() else "no such file"
        raise DataError(
            f"a token file must have the {size} bytes that the manifest says", value=found, file=file, remedy=WHOLE
        )
    if not count:  # an empty file can't be mapped
        return np.empty(0, dtype)
    array: NDArray[Any] = np.memmap(file, dtype, "r")
    return array


def read_index(folder: Path, shard: Shard) -> NDArray[np.int64]:
    """The index of a shard, [documents + 1, 3], mapped."""
    found = mapped(folder / f"{shard.name}.idx", "<i8", (shard.documents + 1) * COLUMNS)
    return found.reshape(-1, COLUMNS)
