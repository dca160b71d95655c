"""Files of prompts: a line each, of text or of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from transpect.base.codec import did_you_mean
from transpect.base.errors import DataError, first_line
from transpect.base.files import parse_json, read_text_file

__all__ = ["Asked", "digest", "read_prompts", "read_texts"]

PLAIN, JSONL = (".txt",), (".jsonl", ".ndjson")
KEYS: Final = ("prompt", "messages", "id", "params")


@dataclass(frozen=True)
class Asked:
    """One prompt of a file.

    Attributes:
        line: where it stands, from 1.
        prompt: a text, or ids; None where there are messages.
        messages: a conversation to be answered; None where there is a prompt.
        id: what the file calls it.
        params: its own parameters of generation, over those of the command.
    """

    line: int
    prompt: str | list[int] | None
    messages: list[dict[str, Any]] | None = None
    id: Any = None
    params: Mapping[str, Any] = field(default_factory=dict)


def read_prompts(path: str | Path) -> list[Asked]:
    """The prompts of a file.

    A ``.txt`` file has one a line, a ``.jsonl`` file an object a line: ``prompt`` (a text, or a list of ids) or
    ``messages`` (a conversation), and perhaps ``id`` (anything, which the output repeats) and ``params`` (parameters of
    generation of its own). Blank lines are passed over.

    Raises:
        DataError: it can't be read, holds no prompt, or a line is something else.
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in (*PLAIN, *JSONL):
        raise DataError("a file of prompts must end in .txt or .jsonl", value=kind, file=file, remedy="Rename it.")
    lines = [(number, line) for number, line in enumerate(_lines(file), 1) if line.strip()]
    found = [Asked(number, line) if kind in PLAIN else _object(file, number, line) for number, line in lines]
    if not found:
        raise DataError("a file of prompts must hold at least one", file=file)
    return found


def read_texts(path: str | Path) -> list[str]:
    """The texts of a file, one a line: as they are in a ``.txt`` file, under ``text`` in a ``.jsonl`` file.

    Raises:
        DataError: it can't be read, holds no text, or a line is something else.
    """
    file = Path(path)
    if file.suffix.lower() not in JSONL:
        texts = [line for line in _lines(file) if line.strip()]
    else:
        texts = []
        for number, line in enumerate(_lines(file), 1):
            if not line.strip():
                continue
            row = _row(file, number, line)
            if not isinstance(row.get("text"), str):
                raise DataError(
                    "a line must have `text`, a string", value=row.get("text"), file=file, line=number, remedy=_has(row)
                )
            texts.append(row["text"])
    if not texts:
        raise DataError("a file of texts must hold at least one", file=file)
    return texts


def digest(path: str | Path) -> str:
    """What tells the contents of a file from all others."""
    return blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        raise DataError("no such file", file=file, remedy="Check the path.")
    text = read_text_file(file, DataError).removeprefix("\ufeff")
    return [line.removesuffix("\r") for line in text.split("\n")]  # U+2028 and its like stand inside a text


def _row(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = parse_json(line, file, DataError)
    except DataError as error:
        error.line = number
        raise
    if not isinstance(row, dict):
        raise DataError("a line must be one JSON object", value=row, file=file, line=number)
    return row


def _object(file: Path, number: int, line: str) -> Asked:
    row = _row(file, number, line)
    for key in row:
        if key not in KEYS:
            raise DataError(
                f"a line holds no {key!r}",
                file=file,
                line=number,
                remedy=f"{did_you_mean(key, KEYS)} It holds {', '.join(KEYS)}.".strip(),
            )
    told = {key: value for key, value in row.items() if key != "params"}
    try:
        json.dumps(told, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError as error:  # half of a surrogate pair, NaN: Python reads them, and others don't
        raise DataError(
            "a line must hold only text that is Unicode and numbers that are finite, for the output repeats it",
            file=file,
            line=number,
            remedy=f"Mend the line: {first_line(error)}.",
        ) from error
    prompt, messages, params = row.get("prompt"), row.get("messages"), row.get("params", {})
    ids = isinstance(prompt, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in prompt)
    if (prompt is None) == (messages is None) or not (prompt is None or isinstance(prompt, str) or ids):
        raise DataError(
            "a line must have either `prompt`, a text or a list of ids, or `messages`",
            value=row,
            file=file,
            line=number,
            remedy='Write {"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}.',
        )
    if not isinstance(params, dict):
        raise DataError(
            "params must be a mapping of parameters of generation",
            value=params,
            file=file,
            line=number,
            remedy='Write {"prompt": "…", "params": {"seed": 1}}.',
        )
    return Asked(number, prompt, messages, row.get("id"), params)


def _has(row: Mapping[str, Any]) -> str:
    return f"The line has {', '.join(map(repr, row)) or 'nothing'}."
