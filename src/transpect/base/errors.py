"""One tree of errors. Each says which rule was broken, by what value, and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class TranspectError(Exception):
    """An error that a user can mend.

    ``str(error)`` reads ``[file[:line]: ]rule (got value). remedy`` and fits a terminal without a traceback.

    Args:
        rule: what must hold, in one clause, e.g. ``"d_model must be a multiple of n_heads"``.
        value: the value that broke it; omitted from the message when None.
        remedy: what to do, as a sentence.
        file: the file where the value was read.
        line: its 1-based line in that file.

    ``path`` is the dotted path of the value in a configuration, as a tuple, where there is one.
    """

    def __init__(
        self,
        rule: str,
        *,
        value: object = None,
        remedy: str = "",
        file: str | Path | None = None,
        line: int | None = None,
    ) -> None:
        self.rule, self.value, self.remedy, self.file, self.line = rule, value, remedy, file, line
        self.path: tuple[str, ...] = ()
        super().__init__(rule)

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}{'' if self.line is None else f':{self.line}'}: "
        got = "" if self.value is None else f" (got {_short(self.value)})"
        remedy = f". {self.remedy}" if self.remedy else ""
        return f"{where}{self.rule}{got}{remedy}"


class ConfigError(TranspectError):
    """A configuration that can't be built: unknown key, wrong type, values that contradict each other."""


class DataError(TranspectError):
    """Input data that can't be read: a missing file, a bad line."""


class TokenizerError(TranspectError):
    """A tokenizer that can't be trained, loaded or used as asked."""


class CheckpointError(TranspectError):
    """A checkpoint that is missing, incomplete, or does not fit the model."""


class ContextLengthError(TranspectError):
    """More tokens than the model has positions for."""


class MaskError(TranspectError):
    """A mask or tag whose meaning is unclear or whose shape does not fit."""


class GenerationError(TranspectError):
    """A generation parameter outside its range."""


def one_line(error: TranspectError | OSError) -> str:
    """An error as a person reads it on a terminal; of the operating system's, the file and what is the matter."""
    if isinstance(error, TranspectError):
        text = str(error)
    else:
        where = "" if error.filename is None else f"{error.filename}: "
        text = f"{where}{error.strerror or error}"
    return " ".join(text.split())


def first_line(error: BaseException) -> str:
    """What an error of somebody else's program says first, cut at 200 characters; its type where it says nothing."""
    return (_COLOUR.sub("", str(error)).strip().splitlines() or [type(error).__name__])[0][:200]


def _short(value: object, limit: int = 120) -> str:
    text = str(value) if isinstance(value, Path) else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
