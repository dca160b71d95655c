"""Files of a checkpoint that people wrote, copied or cloned: text and JSON, read in one way everywhere; and places to
write to."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

from transpect.base.errors import ConfigError, TranspectError

__all__ = ["check_writable", "parse_json", "read_json_file", "read_text_file", "refuse_pointer", "unique_keys"]

_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_WHOLE: Final = "The file is damaged or cut short: copy or save it again."

Kind = type[TranspectError]


def check_writable(path: Path) -> None:
    """Refuse a place where nothing can be made, before there is anything to write; what stands there is not touched.

    Args:
        path: a directory, or what is to be made, with the directories above it.

    Raises:
        ConfigError: no right to write there, a file system that is only read, or a file in the place of a directory.
    """
    place = path.absolute()
    if os.path.exists(place) and not os.path.isdir(place):
        return  # a file that may be replaced
    while not os.path.exists(place):
        place = place.parent
    if not os.path.isdir(place):
        raise ConfigError(
            "what is written needs a directory, and this is a file", value=place, remedy=f"Choose another than {path}."
        )
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(
            "this directory can't be written to",
            value=place,
            remedy=f"Choose another than {path}.",
        )


def refuse_pointer(file: Path, kind: Kind) -> None:
    """Refuse what a clone without Git LFS leaves in the place of a large file.

    Raises:
        kind: it can't be read, or is such a pointer.
    """
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_POINTER))
    except OSError as error:
        raise kind(f"can't read: {error.strerror}", file=file, remedy="Check the path and its rights.") from error
    if start == _POINTER:
        raise kind(
            "this is a Git LFS pointer, which stands in the place of the file itself",
            file=file,
            remedy="Fetch the file: git lfs pull, in the repository that it was cloned from.",
        )


def read_text_file(file: Path, kind: Kind) -> str:
    """A UTF-8 text.

    Raises:
        kind: it can't be read, is not UTF-8, or is a Git LFS pointer.
    """
    refuse_pointer(file, kind)
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise kind(f"can't read: {error.strerror}", file=file, remedy="Check the path and its rights.") from error
    except UnicodeDecodeError as error:
        raise kind(
            f"not UTF-8: {error.reason}", file=file, remedy="Check that it is the right file, and whole."
        ) from error


def read_json_file(file: Path, kind: Kind) -> Any:
    """What a JSON file holds (see `parse_json`).

    Raises:
        kind: as `read_text_file` and `parse_json`.
    """
    return parse_json(read_text_file(file, kind), file, kind)


def parse_json(text: str, file: Path, kind: Kind) -> Any:
    """What the text of a JSON file means, where every reader would take it to mean the same.

    A byte order mark is refused: `transformers`, which may have to read a copy of the file, does too. So is a key that
    stands twice in an object, of which each reader picks the value that it likes.

    Raises:
        kind: not valid JSON, or one of these.
    """
    if text.startswith("\ufeff"):
        raise kind(
            "JSON must not begin with a byte order mark", file=file, remedy="Save it as UTF-8 without one (BOM)."
        )
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        raise kind(f"not valid JSON: {error.msg}", file=file, line=error.lineno, remedy=_WHOLE) from error
    except RecursionError as error:
        raise kind("not valid JSON: nested too deep", file=file, remedy=_WHOLE) from error
    except _TwiceError as error:
        raise kind(
            "a key may stand in a JSON object only once", value=error.key, file=file, remedy="Keep one."
        ) from error
    except ValueError as error:  # Python reads no integer of thousands of digits
        raise kind("not valid JSON: a number of too many digits", file=file, remedy=_WHOLE) from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For ``object_pairs_hook`` of `json.loads`.

    Raises:
        ValueError: a key stands twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise _TwiceError(key)
    return found


class _TwiceError(ValueError):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"the key {key!r} stands twice")
