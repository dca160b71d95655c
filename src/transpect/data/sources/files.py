"""From a path to files, and from a file to its text: strict, and by name where something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from glob import glob, has_magic
from pathlib import Path

from transpect.base.errors import DataError


def find(path: str, endings: tuple[str, ...]) -> list[Path]:
    """The files that a path stands for, in the order of their names.

    Args:
        path: a file (of any ending), a folder (every file below it with one of the endings, hidden ones left out) or a
            glob, in which ``**`` is any depth. A relative one starts where the program runs; ``~`` and ``$NAME`` are
            not expanded.
        endings: e.g. ``(".txt",)``, in lower case; those of files may be in either.

    Raises:
        DataError: there is no such file, or none in the folder.
    """
    place = Path(path)
    if place.is_dir():
        files = [file for file in place.rglob("*") if file.suffix.lower() in endings and _is_shown(file, place)]
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
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataError(f"the file can't be read: {error.strerror}", file=file) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"text must be UTF-8; byte {error.start} of the file is not",
            value=data[error.start : error.start + 4],
            file=file,
            line=data.count(b"\n", 0, error.start) + 1,
            remedy="If it is GBK or GB 18030, convert it: iconv -f GB18030 -t UTF-8 OLD > NEW.",
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, each with its number from 1 and without its end.

    Only a line feed ends a line; U+2028 and its like are text.
    """
    return ((number, line) for number, line in enumerate(read_text(file).split("\n"), 1) if line.strip())


def _is_shown(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return file.is_file() and not hidden


def _remedy(path: str) -> str:
    unexpanded = "`~` and `$NAME` are not expanded. " if path.startswith("~") or "$" in path else ""
    return f"{unexpanded}Check the path; a relative one starts at {Path.cwd()}."
