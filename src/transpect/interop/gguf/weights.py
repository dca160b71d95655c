"""The tensors of a GGUF file under their Hugging Face names: dequantised by parts, when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.base.gguf import Gguf, TensorInfo
from transpect.interop.gguf.table import PLAIN, Architecture, Layout
from transpect.interop.weights import Weights
from transpect.quant.formats import Format, GgufBlocks, GgufKind, Stored

__all__ = ["BLOCKS", "GgufWeights", "numbers"]

_AS_STORED = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16, 28: torch.float64}
_PART = 2**20  # numbers at a time: 4 MiB of float32
BLOCKS: Final[dict[int, GgufKind]] = {2: "Q4_0", 3: "Q4_1", 8: "Q8_0", 12: "Q4_K", 14: "Q6_K"}
_ANY_INTEGER = (24, 25, 26, 27)


@dataclass(frozen=True)
class _Held:
    info: TensorInfo
    layout: Layout
    heads: int


class GgufWeights(Weights):
    """The tensors of a GGUF file as a Hugging Face checkpoint of the same model has them.

    Quantised tensors count as float32. Nothing is read before a tensor is asked for; what is stored as it is used stays
    in the mapped file, all else is made by parts of some rows, so that no tensor is ever held twice.

    Raises:
        CheckpointError: a tensor whose shape does not fit the architecture.
    """

    def __init__(self, file: Gguf, architecture: Architecture, config: Mapping[str, Any]) -> None:
        self._path: Path = file.path
        self._held: dict[str, _Held] = {}
        self.shapes, self.dtypes = {}, {}
        for theirs, info in file.tensors.items():
            if theirs in architecture.absorbed:
                continue
            name, layout = architecture.name_of(theirs)
            heads = config[layout.heads] if layout.heads else 0
            if layout.heads and (heads < 1 or not info.shape or info.shape[0] % (2 * heads)):
                raise CheckpointError(
                    f"the rows of {theirs} must be {heads} heads of an even width", value=info.shape, file=file.path
                )
            self._held[name] = _Held(info, layout, heads)
            self.shapes[name] = info.shape[::-1] if layout.transposed else info.shape
            self.dtypes[name] = _dtype(info.kind)

    def __getitem__(self, name: str) -> Tensor:
        held = self._held[name]
        if held.layout == PLAIN and held.info.kind in _AS_STORED and held.info.nbytes:
            return _mapped(self._path, held.info)
        return self.copy(name, self.dtypes[name], torch.device("cpu"))

    def stored(self, name: str) -> tuple[Format, Stored] | None:
        """A matrix in its blocks, rows in the order of Hugging Face.

        A view of the mapped file, or a copy where rows change their order; None for what has no blocks of these kinds,
        or whose numbers are not those of the file.
        """
        held = self._held[name]
        kind = BLOCKS.get(held.info.kind)
        if kind is None or len(held.info.shape) != 2 or not held.info.nbytes:
            return None
        if held.layout.transposed or held.layout.shift:
            return None
        n_rows = held.info.shape[0]
        raw = np.memmap(self._path, dtype=np.uint8, mode="c", offset=held.info.offset, shape=(held.info.nbytes,))
        rows = torch.from_numpy(raw).view(n_rows, -1)
        if held.heads:
            rows = rows[torch.from_numpy(held.layout.order(n_rows, held.heads))]
        return GgufBlocks(kind), {"packed": rows}

    def passing(self, name: str, rows: slice = slice(None)) -> Tensor:
        held = self._held[name]
        if held.layout.transposed and held.info.shape[1:]:
            return self.copy(name, self.dtypes[name], torch.device("cpu"))[rows]
        if not held.info.shape:
            return _read(self._path, held.info, 0, 1).reshape(())
        first, last, _ = rows.indices(held.info.shape[0])
        if not held.heads or last <= first:
            return _unshifted(_read(self._path, held.info, first, last), held.layout)
        order = held.layout.order(held.info.shape[0], held.heads)[first:last]
        start = int(order.min())
        block = _read(self._path, held.info, start, int(order.max()) + 1)
        return _unshifted(block[torch.from_numpy(order - start)], held.layout)

    def copy(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
        held, shape = self._held[name], self.shapes[name]
        out = torch.empty(shape, dtype=dtype, device=device)
        if not shape or not out.numel():
            return out.copy_(self.passing(name)) if not shape else out
        turned = held.layout.transposed and len(shape) == 2
        n_rows = held.info.shape[0]
        step = max(1, _PART * n_rows // out.numel())
        if held.heads:  # whole heads, so that no row is read twice
            width = n_rows // held.heads
            step = max(1, step // width) * width
        for start in range(0, n_rows, step):
            rows = slice(start, min(start + step, n_rows))
            if turned:
                out[:, rows].copy_(_read(self._path, held.info, rows.start, rows.stop).t())
            else:
                out[rows].copy_(self.passing(name, rows))
        return out


def numbers(file: Gguf, name: str) -> npt.NDArray[np.float32]:
    """A small tensor of the file, as it stands there."""
    info = file.tensors[name]
    read = _read(file.path, info, 0, info.shape[0] if info.shape else 1)
    found: npt.NDArray[np.float32] = read.float().numpy()
    return found


def _dtype(kind: int) -> torch.dtype:
    if kind in _ANY_INTEGER:
        return {24: torch.int8, 25: torch.int16, 26: torch.int32, 27: torch.int64}[kind]
    return _AS_STORED.get(kind, torch.float32)


def _unshifted(block: Tensor, layout: Layout) -> Tensor:
    return block - layout.shift if layout.shift else block


def _mapped(path: Path, info: TensorInfo) -> Tensor:
    raw = np.memmap(path, dtype=np.uint8, mode="c", offset=info.offset, shape=(info.nbytes,))
    return torch.from_numpy(raw).view(_AS_STORED[info.kind]).reshape(info.shape)


def _read(path: Path, info: TensorInfo, first: int, last: int) -> Tensor:
    """Rows ``first`` to ``last`` of a tensor, dequantised to float32 where they are in blocks."""
    row = info.nbytes // (info.shape[0] if info.shape else 1) if info.nbytes else 0
    with path.open("rb", buffering=0) as file:
        file.seek(info.offset + first * row)
        raw = bytearray((last - first) * row)
        if file.readinto(raw) != len(raw):
            raise CheckpointError(f"the tensor {info.name} must end within the file", file=path)
    shape = (last - first, *info.shape[1:]) if info.shape else ()
    dtype = _dtype(info.kind)
    if info.kind in _AS_STORED or info.kind in _ANY_INTEGER:
        return torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)
    from gguf import GGMLQuantizationType
    from gguf.quants import QuantError, dequantize

    blocks = np.frombuffer(raw, np.uint8).reshape(-1, row)
    try:
        dense = dequantize(blocks, GGMLQuantizationType(info.kind))
    except (RuntimeError, QuantError) as error:
        raise CheckpointError(
            f"the tensor {info.name} is quantised in a way that the gguf package can't read",
            value=GGMLQuantizationType(info.kind).name,
            file=path,
            remedy="Quantise the model to Q8_0, Q6_K or Q4_K, or upgrade the package: pip install -U gguf.",
        ) from error
    return torch.from_numpy(dense).reshape(shape)
