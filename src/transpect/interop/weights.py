"""Named tensors of a checkpoint, whatever kind of file they lie in, read only when asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.base.files import read_json_file
from transpect.quant.formats import Format, Stored

__all__ = ["ALIGNED", "PART", "Buffer", "Weights", "copy_by_parts", "read_json"]

ALIGNED = 64  # bytes, as torch allocates
PART = 4 * 2**20  # bytes that are read at a time


class Weights(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name.

    Attributes:
        shapes: of each tensor, known before any of its numbers is read.
        dtypes: likewise; what ``weights[name]`` has.
    """

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, torch.dtype]
    compressed: ClassVar[bool] = False
    """Whether formats are what the checkpoint is made of, so that its weights stay in them unless asked otherwise."""

    def __getitem__(self, name: str) -> Tensor:
        """A tensor to keep. It may be backed by the file; then nothing is read before its numbers are used."""
        raise AssertionError("abstract")

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def stored(self, name: str) -> tuple[Format, Stored] | None:
        """A matrix in the format that it is stored in, row after row; None where that is none of ours."""
        return None

    def passing(self, name: str, rows: slice = slice(None)) -> Tensor:
        """A tensor, or some rows of it, that the caller copies from before it asks for the next one."""
        raise AssertionError("abstract")

    def copy(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor in memory of its own."""
        raise AssertionError("abstract")


class Buffer:
    """Memory that is used again and again for tensors that pass; the heap would keep a hole for each of them."""

    def __init__(self) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor with any numbers, in place of the last one."""
        size = math.prod(shape) * dtype.itemsize
        if size > len(self._bytes):
            self._bytes = torch.empty(0, dtype=torch.uint8)  # never both
            self._bytes = torch.empty(size, dtype=torch.uint8)
        return self._bytes[:size].view(dtype).view(tuple(shape))


def copy_by_parts(weights: Weights, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What `Weights.copy` gives, some rows at a time, so that a large table never stands in memory twice."""
    shape = weights.shapes[name]
    out = torch.empty(shape, dtype=dtype, device=device)
    if not shape or not out.numel():
        return out.copy_(weights.passing(name))
    step = max(1, PART * shape[0] // (out.numel() * weights.dtypes[name].itemsize))
    for start in range(0, shape[0], step):
        rows = slice(start, start + step)
        out[rows].copy_(weights.passing(name, rows))
    return out


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CheckpointError: no such file, no JSON that everybody reads alike (see `read_json_file`), or not an object.
    """
    data = read_json_file(file, CheckpointError)
    if not isinstance(data, dict):
        raise CheckpointError("must hold a JSON object", value=data, file=file)
    return data
