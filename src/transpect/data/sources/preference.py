"""Preferences: an answer to a prompt that was chosen, and one that was rejected."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.conversations import Message, MisfitError, as_messages, said, system_of, tools_of
from transpect.data.sources.records import Records, RowReader
from transpect.data.sources.rows import Row


@final
@dataclass(frozen=True)
class Preference(Records, kind="preference"):
    """A preference a row, of JSON lines or of a JSON array: ``prompt``, ``chosen``, ``rejected``.

    Each is a string (what a user asks, what the assistant answers) or messages. ``chosen`` and ``rejected`` may hold
    the prompt's messages before the answer; then ``prompt`` may be left out, and is what both begin with. ``system``
    and ``tools`` may stand beside them.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        on_bad_line: ``error``, or ``skip`` and count it.
    """

    path: str
    on_bad_line: OnBadLine = "error"

    def reader(self, file: Path) -> RowReader:
        return _Reader(file)


class _Reader(RowReader):
    def document(self, row: Row, line: int) -> Document:
        try:
            record = preference(row)
        except MisfitError as error:
            remedy = 'Write {"prompt": …, "chosen": …, "rejected": …}, each a string or messages.'
            raise self.error(f"a preference needs a prompt and two answers: {error}", row, line, remedy) from None
        spoken = [*record["prompt"], record["chosen"], record["rejected"]]
        return Document(said(spoken), file=str(self.file), line=line, record=json.dumps(record, ensure_ascii=False))


def preference(row: Row) -> dict[str, Any]:
    """``{"prompt": messages, "chosen": message, "rejected": message}``, with ``tools`` where there are some.

    Raises:
        MisfitError: something is missing, or an answer is not one message of the assistant.
    """
    for key in ("chosen", "rejected"):
        if key not in row:
            raise MisfitError(f"`{key}` is missing")
    chosen, rejected = (as_messages(row[key], "assistant", key) for key in ("chosen", "rejected"))
    if "prompt" in row:
        prompt = as_messages(row["prompt"], "user", "prompt")
        sides = [side[len(prompt) :] if side[: len(prompt)] == prompt else side for side in (chosen, rejected)]
    else:
        shared = 0
        while shared < min(len(chosen), len(rejected)) - 1 and chosen[shared] == rejected[shared]:
            shared += 1
        prompt, sides = chosen[:shared], [chosen[shared:], rejected[shared:]]
    if not prompt:
        raise MisfitError("`prompt` is missing, and the answers begin with no messages in common")
    for key, side in zip(("chosen", "rejected"), sides, strict=True):
        if len(side) != 1 or side[0].get("role") != "assistant":
            raise MisfitError(f"`{key}` must end in one message of the assistant after the prompt")
    if prompt[0]["role"] != "system":
        prompt = [*system_of(row), *prompt]
    answers: dict[str, Message] = {"chosen": sides[0][0], "rejected": sides[1][0]}
    return {"prompt": prompt, **answers, **tools_of(row)}
