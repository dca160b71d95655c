"""Files that may be compressed: ``.gz`` by the standard library, ``.zst`` by the package ``zstandard``."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from transpect.base.errors import DataError
from transpect.base.files import refuse_pointer

COMPRESSED: Final = (".gz", ".zst")


def ending(file: Path) -> str:
    """The ending that tells a file's kind, in lower case: ``.jsonl`` of ``a.jsonl``, ``a.JSONL`` and ``a.jsonl.gz``."""
    last = file.suffix.lower()
    return file.with_suffix("").suffix.lower() if last in COMPRESSED else last


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked while they are read.

    Raises:
        DataError: it can't be read, is a Git LFS pointer, is damaged or cut short, or needs a package that is absent.
    """
    refuse_pointer(file, DataError)
    try:
        with _stream(file) as stream:
            yield stream
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _damaged(file, error) from error
        raise DataError(f"the file can't be read: {error.strerror}", file=file) from error
    except (EOFError, zlib.error) as error:
        raise _damaged(file, error) from error


def _stream(file: Path) -> BinaryIO:
    match file.suffix.lower():
        case ".gz":
            return cast(BinaryIO, gzip.open(file, "rb"))
        case ".zst":
            return io.BufferedReader(_Frames(file, _zstandard(file)))
        case _:
            return file.open("rb")


class _Frames(io.RawIOBase):
    """The frames of a ``.zst`` file, end to end, as those of gzip are read. The package's own reader takes a file that
    is cut short for one that ends there."""

    def __init__(self, file: Path, zstandard: Any) -> None:
        self._packed, self._zstandard = file.open("rb"), zstandard
        self._frame: Any = None
        self._rest, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            part = self._rest or self._packed.read(io.DEFAULT_BUFFER_SIZE)
            if not part and self._frame is not None:
                raise EOFError("it ends inside a frame")
            if not part:
                return 0
            self._ready = memoryview(self._unpacked(part))
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def close(self) -> None:
        self._packed.close()
        super().close()

    def _unpacked(self, part: bytes) -> bytes:
        if self._frame is None:
            self._frame = self._zstandard.ZstdDecompressor().decompressobj()
        try:
            found: bytes = self._frame.decompress(part)
        except self._zstandard.ZstdError as error:
            raise EOFError(str(error)) from error
        self._rest = self._frame.unused_data
        if self._frame.eof:
            self._frame = None
        return found


def _zstandard(file: Path) -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise DataError(
            "a .zst file is read by the package zstandard, which is not installed",
            file=file,
            remedy="pip install 'transpect[data]', or unpack the file: zstd -d FILE.",
        ) from error
    return zstandard


def _damaged(file: Path, error: Exception) -> DataError:
    return DataError(
        f"the compressed file is damaged or cut short: {error}", file=file, remedy="Copy or make it again."
    )
