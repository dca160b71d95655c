"""The source that a bare path means, as after ``--data``."""

from __future__ import annotations

import dataclasses
from typing import Final

from transpect.base.errors import DataError
from transpect.data.sources.base import Source
from transpect.data.sources.files import find
from transpect.data.sources.jsonl import JSONL_ENDINGS, Jsonl
from transpect.data.sources.text import TEXT_ENDINGS, Text
from transpect.data.sources.tsv import TSV_ENDINGS, Tsv

FileSource = Text | Jsonl | Tsv

_KINDS: Final[dict[str, type[FileSource]]] = {
    ending: kind
    for kind, endings in ((Text, TEXT_ENDINGS), (Jsonl, JSONL_ENDINGS), (Tsv, TSV_ENDINGS))
    for ending in endings
}


def source_from_path(path: str, like: Source | None = None) -> Source:
    """The source for a path, its kind told by the endings of the files.

    Args:
        path: a file, a folder or a glob.
        like: a source whose options are kept where it is of the same kind (the one of a recipe).

    Raises:
        DataError: no such file, an unknown ending, or a folder that mixes kinds.
    """
    files = find(path, tuple(_KINDS))
    kinds = {_KINDS.get(file.suffix.lower()): file for file in files}
    if None in kinds:
        raise DataError(
            f"a data file must end in {', '.join(_KINDS)} for its kind to be known",
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
    kind = next(kind for kind in kinds if kind is not None)
    if isinstance(like, kind):
        return dataclasses.replace(like, path=path)
    return kind(path)
