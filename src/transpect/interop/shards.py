"""Which files of a directory hold its weights: one, or the shards that an index names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from transpect.base.errors import CheckpointError
from transpect.interop.weights import read_json

__all__ = ["PICKLED", "SAFETENSORS", "checked", "has_weights", "shards"]

SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"


def has_weights(folder: Path, name: str) -> bool:
    """Whether a directory holds weights under this name, in one file or many."""
    return (folder / name).is_file() or (folder / f"{name}.index.json").is_file()


def shards(folder: Path, name: str) -> Mapping[Path, list[str]]:
    """The files of the weights called ``name``, with the tensors that the index promises in each.

    Raises:
        CheckpointError: a damaged index, a shard that is missing or lies elsewhere.
    """
    if (folder / name).is_file():
        return {checked(folder / name): []}
    index = folder / f"{name}.index.json"
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError("the index must have a `weight_map` of tensors to files", value=table, file=index)
    found: dict[Path, list[str]] = {}
    for tensor, shard in table.items():
        plain = isinstance(shard, str) and shard not in ("", ".", "..") and not set(shard) & set("/\\\0:")
        if not plain:
            raise CheckpointError("a shard must be a plain file name inside the directory", value=shard, file=index)
        found.setdefault(folder / shard, []).append(tensor)
    missing = [file.name for file in found if not file.is_file()]
    if missing:
        raise CheckpointError("shards named by the index are missing", value=missing[:10], file=index)
    for file in found:
        checked(file)
    return found


def checked(file: Path) -> Path:
    """``file``, unless it is a link that leads out of its directory.

    The cache of the hub keeps links to the ``blobs`` beside its ``snapshots``: these may be followed. Any other link
    may have come with the checkpoint, from an archive or a repository, and is not followed to somebody's own files.

    Raises:
        CheckpointError: it leads elsewhere.
    """
    folder, target = Path(os.path.realpath(file.parent)), Path(os.path.realpath(file))
    caches = [above / "blobs" for above in folder.parents if above.name == "snapshots" for above in (above.parent,)]
    if not any(target.is_relative_to(place) for place in (folder, *caches)):
        raise CheckpointError(
            "a weights file must not be a link that leads out of its directory",
            value=target,
            file=file,
            remedy="Copy the file here, or give the directory that it lies in.",
        )
    return file
