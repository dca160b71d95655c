"""Safetensors files: checked against their real size, memory-mapped, in one file or many; and one written."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.base.files import refuse_pointer, unique_keys
from transpect.interop.shards import SAFETENSORS, shards
from transpect.interop.weights import ALIGNED, Buffer, Weights, copy_by_parts

__all__ = ["MappedWeights", "write_weights"]


class MappedWeights(Weights):
    """The safetensors of a directory.

    ``weights[name]`` is backed by the file and keeps it mapped. What is only copied does not stay in memory beside its
    copy: its pages are let go again, or its numbers are read into one buffer.

    Raises:
        CheckpointError: no safetensors, a damaged header or index, a shard that is missing or not in the directory.
    """

    def __init__(self, folder: Path) -> None:
        self.shapes, self.dtypes = {}, {}
        self._where: dict[str, _Place] = {}
        self._passed: _Place | None = None
        self._buffer = Buffer()
        for path, promised in shards(folder, SAFETENSORS).items():
            file = _File(path)
            twice = sorted(file.places.keys() & self._where.keys())
            if twice:
                raise CheckpointError("a tensor may stand in one shard only", value=twice[:10], file=path)
            absent = sorted(set(promised) - file.places.keys())
            if absent:
                raise CheckpointError("a shard lacks tensors that the index puts there", value=absent[:10], file=path)
            self._where |= file.places
        for name, place in self._where.items():
            self.shapes[name], self.dtypes[name] = place.shape, place.dtype

    def __getitem__(self, name: str) -> Tensor:
        place = self._where[name]
        if not place.nbytes or place.start % place.dtype.itemsize:
            return self.copy(name, place.dtype, torch.device("cpu"))
        numbers = place.file.mapped()[place.start : place.start + place.nbytes]
        return numbers.view(place.dtype).view(place.shape)

    def passing(self, name: str, rows: slice = slice(None)) -> Tensor:
        place = self._where[name]
        if rows == slice(None):
            if self._passed is not None:
                self._passed.file.let_go(self._passed.start, self._passed.nbytes)
            self._passed = place
            return self[name]
        start, stop, _ = rows.indices(place.shape[0])
        row = place.nbytes // place.shape[0]
        out = self._buffer.tensor((max(0, stop - start), *place.shape[1:]), place.dtype)
        place.file.read(out, place.start + start * row)
        return out

    def copy(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        place = self._where[name]
        if dtype != place.dtype or device.type != "cpu":
            return copy_by_parts(self, name, dtype, device)
        out = torch.empty(place.shape, dtype=dtype)
        place.file.read(out, place.start)
        return out


@dataclass(frozen=True)
class _Place:
    file: _File
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    nbytes: int


class _File:
    """One safetensors file: a length (8 bytes), a JSON header, and the numbers without gaps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        refuse_pointer(path, CheckpointError)  # and what can't be read, of which the library says that it is not there
        try:
            # The library holds the header against the size of the file: its length, its kind of JSON, and of every
            # tensor that shape and dtype fill its place, the places follow each other and end where the file does.
            with safe_open(str(path), framework="pt", device="cpu"):
                pass
            self._raw = FileIO(path)
            length = int.from_bytes(self._raw.read(8), "little")
            header = json.loads(self._raw.read(length), object_pairs_hook=unique_keys)
        except (SafetensorError, OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"not a complete safetensors file: {error}", file=path) from error
        self._map: mmap.mmap | None = None
        self.places = {
            name: self._place(name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"
        }

    def _place(self, name: str, entry: Mapping[str, Any], start: int) -> _Place:
        if entry["dtype"] not in _DTYPES:
            raise CheckpointError(
                f"the tensor {name} has a dtype that is not supported", value=entry["dtype"], file=self.path
            )
        dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
        return _Place(self, dtype, shape, start + entry["data_offsets"][0], math.prod(shape) * dtype.itemsize)

    def mapped(self) -> Tensor:
        """All bytes of the file. What is written to them stays in memory."""
        if self._map is None:
            self._map = mmap.mmap(self._raw.fileno(), 0, access=mmap.ACCESS_COPY)
        return torch.frombuffer(self._map, dtype=torch.uint8)

    def let_go(self, start: int, length: int) -> None:
        """Forget the pages between two places: they are read again if they are needed again."""
        first, last = -(-start // mmap.PAGESIZE), (start + length) // mmap.PAGESIZE
        if self._map is not None and first < last and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)

    def read(self, out: Tensor, start: int) -> None:
        """Fill a contiguous tensor from where it stands in the file."""
        left = _bytes(out)
        self._raw.seek(start)
        while len(left):
            done = self._raw.readinto(left)
            if not done:
                raise CheckpointError("the file became shorter while it was read", file=self.path)
            left = left[done:]


def _bytes(tensor: Tensor) -> memoryview:
    flat: memoryview = tensor.reshape(-1).view(torch.uint8).numpy().data
    return flat


def write_weights(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write one safetensors file, tensor after tensor, so that no second copy of the weights is ever held.

    Its own library leaves the numbers where the header happens to end; here the header is padded and tensors of odd
    sizes come last, so that the others begin at multiples of 64 bytes and can be used where they are mapped.
    """
    order = sorted(tensors, key=lambda name: (tensors[name].nbytes % ALIGNED != 0, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        tensor = tensors[name]
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": _CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)
    with (folder / SAFETENSORS).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(_bytes(tensors[name].detach().cpu().contiguous()))


_DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_CODES: Final = {dtype: code for code, dtype in _DTYPES.items()}
