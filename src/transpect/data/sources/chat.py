"""Conversations to learn to answer from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.conversations import Form, MisfitError, conversation, form_of, said
from transpect.data.sources.records import Records, RowReader
from transpect.data.sources.rows import Row


@final
@dataclass(frozen=True)
class Chat(Records, kind="chat"):
    """A conversation a row, of JSON lines or of a JSON array.

    Attributes:
        path: a file, a folder or a glob (see `find`).
        form: ``alpaca``, ``sharegpt`` or ``openai`` (see `transpect.data.sources.conversations`); ``auto`` is told,
            file by file, by the keys of its first row, and the other rows of the file must be of that form too.
        on_bad_line: ``error``, or ``skip`` and count it.
    """

    path: str
    form: Literal["auto", "alpaca", "sharegpt", "openai"] = "auto"
    on_bad_line: OnBadLine = "error"

    def reader(self, file: Path) -> RowReader:
        return _Reader(file, None if self.form == "auto" else self.form)


class _Reader(RowReader):
    def __init__(self, file: Path, form: Form | None) -> None:
        super().__init__(file)
        self._form, self._why = form, "as the options say"

    def document(self, row: Row, line: int) -> Document:
        if self._form is None:
            self._form, self._why = form_of(row), f"as the first of its file, on line {line}"
        if self._form is None:
            raise self.error(
                "a conversation must have the keys of a known form",
                row,
                line,
                "openai: messages [{role, content}]; sharegpt: conversations [{from, value}]; alpaca: instruction, "
                "input, output. A jsonl source reads single texts and pairs.",
            )
        try:
            record = conversation(row, self._form)
        except MisfitError as error:
            rule = f"a conversation must be of the form {self._form}, {self._why}: {error}"
            raise self.error(rule, row, line, "Mend or remove it, or name the form in the source's options.") from None
        text = json.dumps(record, ensure_ascii=False)
        return Document(said(record["messages"]), file=str(self.file), line=line, record=text)
