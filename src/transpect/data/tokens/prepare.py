"""From a source to a directory of token files, of which any part can be left and gone on with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from transpect.base.codec import to_data
from transpect.base.errors import ConfigError, DataError
from transpect.data.skipping import BadLines, Skipped
from transpect.data.sources.base import Source
from transpect.data.sources.joined import finite
from transpect.data.tokens.encoding import Part, encoded_parts
from transpect.data.tokens.layout import (
    FORMAT,
    MANIFEST,
    PROGRESS,
    TOKENIZER,
    Manifest,
    Shard,
    fingerprint,
    ids_dtype,
    manifest_data,
    parse_manifest,
    read_index,
    read_manifest,
    text_digest,
    write_json,
)
from transpect.data.tokens.writing import Writing
from transpect.text.tokenizer import Tokenizer

SHARD_TOKENS: Final = 2**26
PART: Final = 512
"""How many documents are encoded at a time,"""
PART_CHARACTERS: Final = 2**17
"""or fewer, where they are long."""


@dataclass(frozen=True)
class Prepared:
    """What `prepare` left.

    Attributes:
        manifest: of the directory.
        skipped: lines that were passed over.
        resumed: how many shards were there already.
    """

    manifest: Manifest
    skipped: Skipped
    resumed: int


def prepare(
    source: Source,
    tokenizer: Tokenizer,
    out: str | Path,
    *,
    shard_tokens: int = SHARD_TOKENS,
    workers: int = 1,
    on_shard: Callable[[Shard], None] = lambda shard: None,
) -> Prepared:
    """Encode a source into token files.

    The memory that it takes depends on the longest documents and on ``shard_tokens`` (24 bytes a document of a shard),
    and not on the size of the source. The files are a function of source, tokenizer and ``shard_tokens`` alone. A
    call that was stopped, by whatever, is gone on with by the same call: whole shards stay, and their texts are read
    again to see that they are the same, but not encoded.

    Args:
        source: with an end; single texts.
        tokenizer: saved beside the files.
        out: the directory: absent, empty, or begun by the same call.
        shard_tokens: a shard is closed with the document that reaches so many tokens.
        workers: processes that encode; 1 is this one.
        on_shard: told of each new shard.

    Raises:
        ConfigError: a source without end, sizes below 1, or a directory that holds something else.
        DataError: as the source's, or pairs of texts, or a source that is not what it was when the call was stopped.
    """
    for name, size in (("shard_tokens", shard_tokens), ("workers", workers)):
        if size < 1:
            raise ConfigError(f"{name} must be at least 1", value=size)
    finite(source)
    folder = Path(out)
    dtype = ids_dtype(tokenizer)
    wanted = Manifest(FORMAT, dtype.name, fingerprint(tokenizer), to_data(source), shard_tokens)
    done = _begun(folder, wanted)
    if (folder / MANIFEST).is_file():
        found = read_manifest(folder)
        return Prepared(found, Skipped(found.bad_lines), len(done))
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".*.new"):
        left.unlink()
    if not (folder / TOKENIZER).is_dir():
        tokenizer.save(folder / TOKENIZER)
    write_json(folder / PROGRESS, manifest_data(replace(wanted, shards=done)))
    bad, shards = BadLines(), list(done)
    parts = encoded_parts(folder / TOKENIZER, _unread(source, bad, folder, done), workers)
    for shard in _written(folder, parts, len(done), dtype, shard_tokens):
        shards.append(shard)
        write_json(folder / PROGRESS, manifest_data(replace(wanted, shards=tuple(shards))))
        on_shard(shard)
    manifest = replace(wanted, shards=tuple(shards), bad_lines=bad.skipped.count)
    write_json(folder / MANIFEST, manifest_data(manifest))
    (folder / PROGRESS).unlink(missing_ok=True)
    return Prepared(manifest, bad.skipped, len(done))


def _begun(folder: Path, wanted: Manifest) -> tuple[Shard, ...]:
    """The shards that are there already."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError("token files need a directory, and this is a file", value=folder)
    file = next((folder / name for name in (MANIFEST, PROGRESS) if (folder / name).is_file()), None)
    if file is None:
        # a call that died at once has left no more than a tokenizer
        strangers = [path.name for path in folder.iterdir() if path.name != TOKENIZER] if folder.is_dir() else []
        if strangers:
            raise ConfigError(
                "token files need a directory that is absent, empty, or begun by the same command",
                value=f"{folder}, with {', '.join(sorted(strangers)[:3])}",
                remedy="Name another directory.",
            )
        return ()
    begun = parse_manifest(file)
    for name, now in manifest_data(wanted).items():
        before = getattr(begun, name)
        if name not in ("shards", "bad_lines") and before != now:
            raise ConfigError(
                f"this directory was begun with another {name}: {before}",
                value=now,
                file=folder,
                remedy="Give what it was begun with, name another directory, or remove this one.",
            )
    return begun.shards


def _unread(source: Source, bad: BadLines, folder: Path, done: Sequence[Shard]) -> Iterator[list[str]]:
    """The texts that stand in no shard yet, in parts; those before them must be those of the shards."""
    known = (digest for shard in done for digest in read_index(folder, shard)[:-1, 2])
    part: list[str] = []
    size = 0
    for document in source.stream(bad):
        if document.target is not None:
            raise DataError(
                "token files hold single texts, and this is a pair",
                file=document.file,
                line=document.line,
                remedy="Leave `target` out of the source.",
            )
        if document.record is not None:
            raise DataError(
                "token files hold plain texts, and this is a record of several",
                value=source.kind,
                file=document.file,
                line=document.line,
                remedy="Train on the source itself.",
            )
        before = next(known, None)
        if before is not None:
            if before.tobytes() != text_digest(document.text):
                raise _changed(document.file, document.line)
            continue
        part.append(document.text)
        size += len(document.text)
        if len(part) == PART or size >= PART_CHARACTERS:
            yield part
            part, size = [], 0
    if next(known, None) is not None:
        raise _changed(None, None)
    if part:
        yield part


def _changed(file: str | None, line: int | None) -> DataError:
    return DataError(
        "the source is not what it was when this directory was begun",
        file=file,
        line=line,
        remedy="Put its files back, or prepare it anew in another directory.",
    )


def _written(
    folder: Path, parts: Iterable[Part], first: int, dtype: np.dtype[Any], shard_tokens: int
) -> Iterator[Shard]:
    """The shards from number ``first`` on, each when it is on the disk."""
    numbers = count(first)
    writing: Writing | None = None
    try:
        for part in parts:
            begin, starts = 0, part.rows.starts
            while begin < len(part.characters):
                if writing is None:
                    writing = Writing(folder, next(numbers), dtype)
                room = shard_tokens - writing.tokens
                end = min(begin + 1 + int(np.searchsorted(starts[begin + 1 :] - starts[begin], room)), len(starts) - 1)
                writing.add(part, begin, end)
                begin = end
                if writing.tokens >= shard_tokens:
                    yield writing.close()
                    writing = None
        if writing is not None:
            yield writing.close()
            writing = None
    finally:
        if writing is not None:
            writing.abandon()
