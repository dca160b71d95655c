"""The source that a bare path means, as after ``--data``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final

from transpect.base.errors import DataError
from transpect.data.sources.base import FileSource, Source
from transpect.data.sources.chat import Chat
from transpect.data.sources.compression import COMPRESSED, ending
from transpect.data.sources.csv_table import Csv
from transpect.data.sources.files import find
from transpect.data.sources.hub_datasets import HUB, HubDataset, is_saved_dataset
from transpect.data.sources.jsonl import Jsonl
from transpect.data.sources.parquet import Parquet
from transpect.data.sources.preference import Preference
from transpect.data.sources.text import Text
from transpect.data.sources.tokens import Tokens
from transpect.data.sources.tsv import Tsv
from transpect.data.tokens.layout import MANIFEST

_KINDS: Final[dict[str, type[FileSource]]] = {
    ending: kind for kind in (Text, Jsonl, Tsv, Csv, Parquet) for ending in kind.endings
}


def source_from_path(path: str, like: Source | None = None) -> Source:
    """The source for a path, its kind told by the endings of the files, or by what a directory holds.

    Args:
        path: a file, a folder or a glob; a directory of token files, or of the package ``datasets``; ``hf:OWNER/NAME``.
        like: a source whose options are kept where it is of the same kind (the one of a recipe).

    Raises:
        DataError: no such file, an unknown ending, or a folder that mixes kinds.
    """
    if isinstance(like, Chat | Preference):
        return dataclasses.replace(like, path=path)
    kind = _kind(path)
    found: Source = dataclasses.replace(like, path=path) if isinstance(like, kind) else kind(path)
    return found


def _kind(path: str) -> type[Any]:
    if (Path(path) / MANIFEST).is_file():
        return Tokens
    if path.startswith(HUB) or is_saved_dataset(Path(path)):
        return HubDataset
    files = find(path, tuple(_KINDS))
    kinds = {_KINDS.get(ending(file)): file for file in files}
    if None in kinds:
        raise DataError(
            f"a data file must end in {', '.join(_KINDS)} for its kind to be known "
            f"({' or '.join(COMPRESSED)} may follow)",
            value=kinds[None].suffix,
            file=kinds[None],
            remedy="Rename it, or name the kind in the recipe: data.train: {kind: text, path: …}.",
        )
    if len(kinds) > 1:
        raise DataError(
            "the files of one source must be of one kind",
            value=sorted(file.name for file in kinds.values()),
            file=path,
            remedy=f"Narrow it with a glob, e.g. {path.rstrip('/')}/*.txt.",
        )
    return next(kind for kind in kinds if kind is not None)
