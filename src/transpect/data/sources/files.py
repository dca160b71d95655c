"""From a path to files, and from a file to its lines: strict, and by name where something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from glob import glob, has_magic
from pathlib import Path

from transpect.base.errors import DataError
from transpect.data.sources.compression import ending, opened

Line = tuple[int, str | DataError]
"""A line's number from 1, and its text without its end, or what is wrong with it."""

_MARK = b"\xef\xbb\xbf"


def find(path: str, endings: tuple[str, ...]) -> list[Path]:
    """The files that a path stands for, in the order of their names.

    Args:
        path: a file (of any ending), a folder (every file below it with one of the endings, hidden ones left out) or a
            glob, in which ``**`` is any depth. A relative one starts where the program runs; ``~`` and ``$NAME`` are
            not expanded.
        endings: e.g. ``(".txt",)``, in lower case; those of files may be in either, with ``.gz`` or ``.zst`` after it.

    Raises:
        DataError: there is no such file, or none in the folder.
    """
    place = Path(path)
    if place.is_dir():
        files = [file for file in place.rglob("*") if ending(file) in endings and _is_shown(file, place)]
        if not files:
            raise DataError(f"the folder must hold a file that ends in {' or '.join(endings)}", file=path)
        return sorted(files)
    if place.exists():
        return [place]
    if has_magic(path):
        matched = sorted(file for file in map(Path, glob(path, recursive=True)) if file.is_file())
        if not matched:
            raise DataError("the pattern must match a file", file=path, remedy=_remedy(path))
        return matched
    raise DataError("no such file or folder", file=path, remedy=_remedy(path))


def read_text(file: Path) -> str:
    r"""The text of a UTF-8 file. A byte order mark at its start is dropped, ``\r\n`` and ``\r`` become ``\n``.

    Raises:
        DataError: it can't be read, or is not UTF-8; the line of the first wrong byte is named.
    """
    with opened(file) as stream:
        data = stream.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # of a file with a mark, the decoder counts from behind it
        at = error.start + (len(_MARK) if len(error.object) < len(data) else 0)
        raise not_utf8(file, data.count(b"\n", 0, at) + 1, at, data[at : at + 4]) from error
    return _with_line_feeds(text)


def all_lines(file: Path) -> Iterator[Line]:
    r"""The lines of a UTF-8 file, one at a time. A byte order mark at its start is dropped.

    ``\n``, ``\r\n`` and ``\r`` end a line; U+2028 and its like are text.

    Raises:
        DataError: the file can't be read.
    """
    number, offset = 1, 0
    with opened(file) as stream:
        for data in stream:
            start = len(_MARK) if not offset and data.startswith(_MARK) else 0
            try:
                parts = _with_line_feeds(data[start:].decode()).removesuffix("\n").split("\n")
            except UnicodeDecodeError as error:
                at = start + error.start
                yield number, not_utf8(file, number, offset + at, data[at : at + 4])
                parts = []
                number += 1
            for part in parts:
                yield number, part
                number += 1
            offset += len(data)


def lines(file: Path) -> Iterator[Line]:
    """The lines that are not blank (see `all_lines`)."""
    return ((number, line) for number, line in all_lines(file) if isinstance(line, DataError) or line.strip())


def not_utf8(file: Path, line: int, offset: int, wrong: bytes) -> DataError:
    """What is said of bytes that are no text: file, line, and which byte of the file (unpacked), from 0."""
    return DataError(
        f"text must be UTF-8; byte {offset} of the file is not",
        value=wrong,
        file=file,
        line=line,
        remedy="If it is GBK or GB 18030, convert it: iconv -f GB18030 -t UTF-8 OLD > NEW.",
    )


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _is_shown(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return file.is_file() and not hidden


def _remedy(path: str) -> str:
    unexpanded = "`~` and `$NAME` are not expanded. " if path.startswith("~") or "$" in path else ""
    return f"{unexpanded}Check the path; a relative one starts at {Path.cwd()}."
