"""The container of a GGUF file: its metadata, and where its tensors stand. No number of a tensor is read here.

Nothing in the header is believed: each count, length and offset is compared with the file's real size before anything
of that size is made, so a file of n bytes costs O(n) time and memory whatever it claims.

Layout (all little endian)::

    "GGUF"  version:u32  n_tensors:u64  n_entries:u64
    n_entries x (key:string  type:u32  value)            a string is length:u64 and that many bytes of UTF-8
    n_tensors x (name:string  n_dims:u32  dims:u64 x n_dims  type:u32  offset:u64)
    padding to general.alignment, then the tensors, each at a multiple of the alignment

Source: the format's specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final

from transpect.base.errors import CheckpointError
from transpect.base.files import refuse_pointer

__all__ = ["Gguf", "TensorInfo", "is_gguf", "read_gguf"]

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
ALIGNMENT: Final = 32
"""Of tensors, where the file does not say ``general.alignment``."""
MAX_DIMS: Final = 4

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DAMAGED = "The file is damaged, cut short or no GGUF file: copy or download it again."


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the file.

    Attributes:
        shape: the slowest axis first, as in NumPy and torch; the file has it the other way round.
        kind: the number of its ``GGMLQuantizationType``.
        offset: of its first byte, from the beginning of the file.
        nbytes: how many bytes it takes.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Gguf:
    """What a file says of itself.

    Attributes:
        path: the file.
        metadata: key to value: numbers, booleans, strings; arrays are lists of strings or NumPy arrays.
        tensors: by name, in the order of the file.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """A value of the metadata, or ``default`` where there is none.

        Raises:
            CheckpointError: it is of another kind.
        """
        value = self.metadata.get(key)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(each.__name__ for each in kinds)
            raise CheckpointError(f"{key} must be of the type {names}", value=value, file=self.path, remedy=_DAMAGED)
        return value


def is_gguf(path: Path) -> bool:
    """Whether a path is a file that begins as GGUF files do."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_gguf(path: str | Path) -> Gguf:
    """Read the header of a GGUF file.

    Raises:
        CheckpointError: no such file, or one that breaks a rule of the format; the message names the rule.
    """
    place = Path(path)
    refuse_pointer(place, CheckpointError)
    try:
        with place.open("rb") as file:
            size = file.seek(0, 2)
            if size < len(MAGIC) + 20:
                raise CheckpointError("a GGUF file has at least 24 bytes", value=size, file=place, remedy=_DAMAGED)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(_Cursor(data, size, place))
    except OSError as error:
        raise CheckpointError(f"can't read: {error.strerror}", file=place, remedy="Check the path.") from error


class _Cursor:
    """A place in the file, which never leaves it."""

    def __init__(self, data: mmap.mmap, size: int, path: Path) -> None:
        self._data, self.size, self.path, self.at = data, size, path, 0

    def error(self, rule: str, value: object = None, remedy: str = _DAMAGED) -> CheckpointError:
        return CheckpointError(rule, value=value, file=self.path, remedy=remedy)

    @property
    def left(self) -> int:
        return self.size - self.at

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise self.error(f"{what} must end within the file: {count} bytes at {self.at}", f"{self.size} bytes")
        start, self.at = self.at, self.at + count
        return self._data[start : self.at]

    def number(self, code: str, what: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}"), what))[0]

    def count(self, smallest: int, what: str) -> int:
        """A count of things of at least ``smallest`` bytes each, all of which must fit into the rest of the file."""
        count: int = self.number("Q", what)
        if count * smallest > self.left:
            raise self.error(f"{what} must fit into the file, which has {self.left} bytes left", count)
        return count

    def string(self, what: str) -> str:
        raw = self.take(self.count(1, f"the length of {what}"), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what} must be UTF-8", raw[:40]) from error

    def strings(self, count: int, key: str) -> list[str]:
        """Many strings; a vocabulary has hundreds of thousands, so this is `string` without its detours."""
        data, at, size, unpack = self._data, self.at, self.size, struct.Struct("<Q").unpack_from
        found = []
        try:
            for _ in range(count):
                (length,) = unpack(data, at)
                at += 8 + length
                if at > size:
                    break
                found.append(data[at - length : at].decode("utf-8"))
        except struct.error:  # the file ends within a length
            at = size + 1
        except UnicodeDecodeError as error:
            raise self.error(f"the items of {key} must be UTF-8", error.object[:40]) from error
        if at > size:
            raise self.error(f"the items of {key} must end within the file", f"{size} bytes")
        self.at = at
        return found


def _read(at: _Cursor) -> Gguf:
    magic = at.take(len(MAGIC), "the magic")
    if magic != MAGIC:
        raise at.error("a GGUF file begins with GGUF", magic)
    version = at.number("I", "the version")
    if version and not version & 0xFFFF:
        raise at.error("a GGUF file must be little endian", version, "Convert it to little endian first.")
    if version not in VERSIONS:
        raise at.error(f"the version of a GGUF file must be {' or '.join(map(str, VERSIONS))}", version, "Convert it.")
    n_tensors = at.count(24, "the number of tensors")
    n_entries = at.count(13, "the number of metadata entries")
    metadata: dict[str, Any] = {}
    for _ in range(n_entries):
        key = at.string("a metadata key")
        if key in metadata:
            raise at.error("a metadata key may stand in the file only once", key)
        metadata[key] = _value(at, at.number("I", f"the type of {key}"), key)
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment < 1 or alignment & (alignment - 1):
        raise at.error("general.alignment must be a power of two", alignment)
    found = [_tensor(at) for _ in range(n_tensors)]
    start = at.at + -at.at % alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, kind, offset in found:
        if name in tensors:
            raise at.error("a tensor may stand in the file only once", name)
        if offset % alignment:
            raise at.error(f"the offset of {name} must be a multiple of the alignment, {alignment}", offset)
        tensors[name] = TensorInfo(name, shape, kind, start + offset, _nbytes(at, name, shape, kind))
    _check_places(at, tensors)
    return Gguf(at.path, metadata, tensors)


def _value(at: _Cursor, kind: int, key: str) -> Any:
    if kind in _SCALARS:
        return at.number(_SCALARS[kind], key)
    if kind == _STRING:
        return at.string(key)
    if kind != _ARRAY:
        raise at.error(f"the type of {key} must be a number from 0 to 12", kind)
    inner = at.number("I", f"the type of the items of {key}")
    if inner == _STRING:
        return at.strings(at.count(8, f"the number of items of {key}"), key)
    if inner not in _SCALARS:
        raise at.error(f"the items of {key} must be numbers or strings", inner, "Arrays of arrays are not supported.")
    import numpy as np

    code = _SCALARS[inner]
    dtype = np.dtype("?" if code == "?" else f"<{code}")
    return np.frombuffer(
        at.take(at.count(dtype.itemsize, f"the number of items of {key}") * dtype.itemsize, key), dtype
    )


def _tensor(at: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = at.string("the name of a tensor")
    n_dims = at.number("I", f"the number of axes of {name}")
    if n_dims > MAX_DIMS:
        raise at.error(f"{name} must have at most {MAX_DIMS} axes", n_dims)
    shape = tuple(at.number("Q", f"the shape of {name}") for _ in range(n_dims))[::-1]
    kind = at.number("I", f"the type of {name}")
    return name, shape, kind, at.number("Q", f"the offset of {name}")


@cache
def _block_sizes() -> dict[int, tuple[int, int]]:
    """For each type of tensor the numbers in a block, and the bytes of a block."""
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}


def _nbytes(at: _Cursor, name: str, shape: tuple[int, ...], kind: int) -> int:
    if kind not in _block_sizes():
        raise at.error(f"the type of {name} is not known", kind, "Upgrade the package gguf: pip install -U gguf.")
    block, nbytes = _block_sizes()[kind]
    row = shape[-1] if shape else 1
    if row % block:
        raise at.error(f"a row of {name} must be whole blocks of {block} numbers", row)
    return prod(shape) // block * nbytes


def _check_places(at: _Cursor, tensors: Mapping[str, TensorInfo]) -> None:
    """Every tensor within the file, and none over another."""
    end, before = 0, ""
    for info in _by_offset(tensors):
        if info.offset + info.nbytes > at.size:
            raise at.error(
                f"the tensor {info.name} must end within the file: {info.nbytes} bytes at {info.offset}",
                f"{at.size} bytes",
            )
        if info.nbytes and info.offset < end:
            raise at.error(f"the tensors {before} and {info.name} must not overlap", info.offset)
        if info.nbytes:
            end, before = info.offset + info.nbytes, info.name


def _by_offset(tensors: Mapping[str, TensorInfo]) -> Iterator[TensorInfo]:
    return iter(sorted(tensors.values(), key=lambda info: info.offset))
