"""Pickled weights, ``pytorch_model.bin``: read only where they are asked for by name, and never as code."""

from __future__ import annotations

import pickle
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.base.files import refuse_pointer
from transpect.interop.shards import PICKLED, shards
from transpect.interop.weights import Weights, copy_by_parts

__all__ = ["PickledWeights"]


class PickledWeights(Weights):
    """The ``pytorch_model.bin`` of a directory, or its shards.

    torch's own unpickler for weights reads it (``weights_only``): it makes tensors, containers and numbers, and calls
    nothing that the file names. Files of torch 1.6 and later stay mapped; older ones are read as a whole.

    Raises:
        CheckpointError: a damaged file, one that holds anything but named tensors, a shard that is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._tensors: dict[str, Tensor] = {}
        for file, promised in shards(folder, PICKLED).items():
            held = _read(file)
            twice = sorted(held.keys() & self._tensors.keys())
            if twice:
                raise CheckpointError("a tensor may stand in one shard only", value=twice[:10], file=file)
            absent = sorted(set(promised) - held.keys())
            if absent:
                raise CheckpointError("a shard lacks tensors that the index puts there", value=absent[:10], file=file)
            self._tensors |= held
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        self.dtypes = {name: tensor.dtype for name, tensor in self._tensors.items()}
        storages = Counter(tensor.untyped_storage().data_ptr() for tensor in self._tensors.values())
        self._shared = {pointer for pointer, users in storages.items() if users > 1}

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._tensors[name]
        # what shared memory with another tensor when it was saved must not go on changing with it
        alone = tensor.untyped_storage().data_ptr() not in self._shared
        return tensor if alone and tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format)

    def passing(self, name: str, rows: slice = slice(None)) -> Tensor:
        tensor = self._tensors[name]
        return tensor if rows == slice(None) else tensor[rows]

    def copy(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        return copy_by_parts(self, name, dtype, device)


def _read(file: Path) -> dict[str, Tensor]:
    refuse_pointer(file, CheckpointError)
    try:
        packed = zipfile.is_zipfile(file)
        if packed:
            _check(file)
        held = torch.load(file, map_location="cpu", weights_only=True, mmap=packed)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"a pickled checkpoint may hold tensors and nothing else: {_reason(error)}",
            file=file,
            remedy="It can run code when it is read in another way, so it is not.",
        ) from error
    except CheckpointError:
        raise
    except Exception as error:  # whatever a damaged file provokes: RuntimeError, EOFError, KeyError, struct.error …
        raise CheckpointError(f"not a complete pickled checkpoint: {_reason(error)}", file=file) from error
    return _named(held, file)


def _check(file: Path) -> None:
    """That an archive holds no more than its size: torch stores numbers as they are."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
    size = file.stat().st_size
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or sum(e.file_size for e in entries) > size:
        raise CheckpointError("the entries of a pickled checkpoint must be stored, not compressed", file=file)


def _named(held: Any, file: Path) -> dict[str, Tensor]:
    if not isinstance(held, dict):
        raise CheckpointError("must hold tensors by name", value=type(held).__name__, file=file)
    strange = [name for name, value in held.items() if not isinstance(name, str) or not isinstance(value, Tensor)]
    if strange:
        raise CheckpointError(
            "must hold tensors by name and nothing else",
            value=strange[:10],
            file=file,
            remedy="If it is a training checkpoint, save its model's state_dict() alone.",
        )
    dense = {name: tensor.detach() for name, tensor in held.items() if tensor.layout == torch.strided}
    if len(dense) < len(held):
        raise CheckpointError("tensors must be dense", value=sorted(held.keys() - dense.keys())[:10], file=file)
    return dense


def _reason(error: Exception) -> str:
    """What torch says, without its advice to read the file in an unsafe way."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Unsupported" in line or "Trying" in line or "WeightsUnpickler error" in line]
    return (telling or lines or [type(error).__name__])[-1][:200]
