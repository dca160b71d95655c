"""Named tensors in safetensors files: memory-mapped, in one file or many, and read only when asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from transpect.base.errors import CheckpointError

__all__ = ["FILE", "INDEX", "Weights", "read_json", "write_weights"]

FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
ALIGNED = 64  # bytes, as torch allocates
_REFRESH = 16 * 2**20  # bytes


class Weights(Mapping[str, Tensor]):
    """The tensors of a checkpoint directory by name.

    Nothing is read before a tensor's numbers are used. ``weights[name]`` is backed by the file and keeps it mapped;
    ``weights.passing(name)`` is for a tensor that is about to be copied: its pages are let go again after a while.

    Raises:
        CheckpointError: no safetensors, a damaged header or index, a shard that is missing or not in the directory.
    """

    def __init__(self, folder: Path) -> None:
        self._files = _files(folder)
        self._kept: dict[Path, Any] = {}
        self._passing: dict[Path, Any] = {}
        self._passed = 0
        self._where: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, torch.dtype] = {}
        for file, promised in self._files.items():
            handle = self._kept[file] = _open(file)
            held = list(handle.keys())
            twice = sorted(set(held) & set(self._where))
            if twice:
                raise CheckpointError("a tensor may stand in one shard only", value=twice[:10], file=file)
            for name in held:
                part = handle.get_slice(name)
                self._where[name] = file
                self.shapes[name] = tuple(part.get_shape())
                self.dtypes[name] = _dtype(part.get_dtype(), name, file)
            absent = sorted(set(promised) - set(held))
            if absent:
                raise CheckpointError("a shard lacks tensors that the index puts there", value=absent[:10], file=file)

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._kept[self._where[name]].get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def passing(self, name: str, rows: slice = slice(None)) -> Tensor:
        """A tensor, or some rows of it, that the caller copies from and lets go."""
        if self._passed > _REFRESH:  # pages stay resident as long as their mapping lives
            self._passing.clear()
            self._passed = 0
        file = self._where[name]
        if file not in self._passing:
            self._passing[file] = _open(file)
        tensor: Tensor = self._passing[file].get_tensor(name)
        if rows != slice(None):
            tensor = tensor[rows]
        self._passed += tensor.nbytes
        return tensor

    def copy(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor of its own, copied by parts, so that a large table is never resident twice."""
        shape = self.shapes[name]
        out = torch.empty(shape, dtype=dtype, device=device)
        if not shape or not out.numel():
            return out.copy_(self.passing(name))
        step = max(1, _REFRESH * shape[0] // (out.numel() * self.dtypes[name].itemsize))
        for start in range(0, shape[0], step):
            rows = slice(start, start + step)
            out[rows].copy_(self.passing(name, rows))
        return out


def write_weights(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Write one safetensors file, tensor after tensor, so that no second copy of the weights is ever held.

    The format is a length (8 bytes), a JSON header and the numbers without gaps. Its own library leaves the numbers
    where the header happens to end; here the header is padded and tensors of odd sizes come last, so that the others
    begin at multiples of 64 bytes and can be used where they are mapped.
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
    with (folder / FILE).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            flat = tensors[name].detach().cpu().contiguous().reshape(-1)
            file.write(flat.view(torch.uint8).numpy().data)


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CheckpointError: no such file, not UTF-8 JSON, or not an object.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"can't read: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"not UTF-8: {error.reason}", file=file) from error
    except json.JSONDecodeError as error:
        raise CheckpointError(f"not valid JSON: {error.msg}", file=file, line=error.lineno) from error
    if not isinstance(data, dict):
        raise CheckpointError("must hold a JSON object", value=data, file=file)
    return data


def _files(folder: Path) -> dict[Path, list[str]]:
    """The safetensors files of a checkpoint, with the tensors that the index promises in each."""
    if (folder / FILE).is_file():
        return {folder / FILE: []}
    if not (folder / INDEX).is_file():
        pickled = [f.name for f in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt"))]
        if pickled:
            raise CheckpointError(
                "weights must be safetensors; pickled ones can run code when they are read",
                value=pickled[0],
                file=folder,
                remedy="Convert them where you trust them: AutoModel.from_pretrained(…).save_pretrained(…).",
            )
        raise CheckpointError(f"no {FILE} in this directory", file=folder)
    index = folder / INDEX
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError("the index must have a `weight_map` of tensors to files", value=table, file=index)
    shards: dict[Path, list[str]] = {}
    for tensor, name in table.items():
        plain = isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0:")
        if not plain:
            raise CheckpointError("a shard must be a plain file name inside the directory", value=name, file=index)
        shards.setdefault(folder / name, []).append(tensor)
    missing = [file.name for file in shards if not file.is_file()]
    if missing:
        raise CheckpointError("shards named by the index are missing", value=missing[:10], file=index)
    return shards


def _open(file: Path) -> Any:
    try:
        return safe_open(str(file), framework="pt", device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"not a complete safetensors file: {error}", file=file) from error


_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_WHOLE = {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
_DTYPES |= _WHOLE | {"BOOL": torch.bool}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def _dtype(name: str, tensor: str, file: Path) -> torch.dtype:
    if name not in _DTYPES:
        raise CheckpointError(f"the tensor {tensor} has a dtype that is not supported", value=name, file=file)
    return _DTYPES[name]
