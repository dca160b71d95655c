"""What a person gives on the command line or on standard input."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transpect.base.errors import ConfigError, DataError, TokenizerError

if TYPE_CHECKING:
    from transpect.cache import CacheKind

__all__ = ["cache_named", "check_together", "read_ids", "read_text", "texts_given", "tokenizer_place"]


def tokenizer_place(name: str) -> Path:
    """Where the tokenizer of a name lies: a path of this machine, or that of a model (see `interop.locate`).

    Raises:
        CheckpointError: no such model.
    """
    path = Path(name)
    if name and (path.exists() or not set(name) & set("/:")):
        return path  # what is wrong with a path, its reader says
    from transpect.interop import body_of, locate

    return body_of(locate(name, weights=False))


def read_text(argument: str | None) -> str:
    """The text itself, or standard input for ``-`` and None, without a byte order mark and the line feed
    that ends its last line.

    Raises:
        DataError: there is no text, or it is not UTF-8.
    """
    text = argument
    if argument is None or argument == "-":
        text = _standard_input("a text").removeprefix("\ufeff").removesuffix("\n")
    assert text is not None
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError("the text must be UTF-8", value=text, remedy="Check the terminal's encoding.") from error
    if not text:
        raise DataError("the text must not be empty", value=text, remedy="Give it in quotes, or pipe it in.")
    return text


def texts_given(texts: Sequence[str], file: str | None) -> list[str]:
    """Texts of a command line, of a file, or of standard input, one a line.

    Raises:
        ConfigError: texts and a file.
        DataError: there is none, or one that is empty or can't be read.
    """
    if file is not None:
        if texts:
            raise ConfigError("texts are given, or a file of them, not both", value=texts[0], remedy="Leave one out.")
        from transpect.cli.prompt_files import read_texts

        return read_texts(file)
    if list(texts) in ([], ["-"]):
        return [line for line in read_text(None).split("\n") if line.strip()]
    return [read_text(text) for text in texts]


def read_ids(words: Sequence[str]) -> list[int]:
    """Token ids parted by spaces or commas, in square brackets or not; standard input for none and for ``-``.

    Raises:
        TokenizerError: one of them is no whole number from 0, or there is none.
    """
    text = " ".join(words) if words and list(words) != ["-"] else _standard_input("ids")
    found = [word for word in re.split(r"[\s,\[\]]+", text) if word]
    if not found:
        raise TokenizerError("there must be at least one id", value=text, remedy="Give ids such as 5 17 3.")
    for word in found:
        if not (word.isascii() and word.isdigit()):
            raise TokenizerError("a token id is a whole number from 0", value=word, remedy="Give ids such as 5 17 3.")
    return [int(word) for word in found]


def cache_named(text: str | None) -> CacheKind | None:
    """The kind of cache that a name, or its name as ``kind`` and its options, stands for.

    Raises:
        ConfigError: there is none.
    """
    if text is None:
        return None
    from transpect.base.codec import from_data, parse_scalar
    from transpect.cache import CacheKind

    data = parse_scalar(text, "--cache")
    return from_data(CacheKind, data if isinstance(data, dict) else {"kind": data}, ("--cache",))


def check_together(**options: object) -> None:
    """Refuse options of which some are given and some are not.

    Raises:
        ConfigError: so it is.
    """
    missing = [f"--{name}" for name, value in options.items() if value is None]
    if missing and len(missing) < len(options):
        given = ", ".join(f"--{name}" for name, value in options.items() if value is not None)
        raise ConfigError(f"{given} needs {' and '.join(missing)} with it", remedy="Give both, or neither.")


def _standard_input(what: str) -> str:
    if sys.stdin.isatty():
        raise DataError(f"{what} must be given", remedy="Give it as an argument, or pipe it in.")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise DataError(
            "standard input must be UTF-8 text", value=error.object[error.start : error.start + 4]
        ) from error
