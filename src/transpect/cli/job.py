"""An output file that grows line by line, and that can be gone on with where it was left.

Beside ``OUT`` stands ``OUT.job.json``, which says what the lines were made from. Whoever asks for the same again goes
on where the last whole line ends, and gets, bit for bit, what one go would have given; whoever asks for something else
is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from transpect.base.errors import DataError

__all__ = ["Job"]

Row = Mapping[str, Any]


class Job:
    """Lines of JSON that are made in order, some at a time.

    Args:
        out: the file.
        made_from: plain data that decides what the lines are; ``{name: value}``, of which the names are for a person.
        fixed: values that are drawn once, when the job begins; as `made_from`, but kept from the beginning.

    Raises:
        DataError: it is a directory, or was begun with something else or by something else.
    """

    def __init__(self, out: Path, made_from: Mapping[str, Any], fixed: Callable[[], Mapping[str, Any]]) -> None:
        if out.is_dir():
            raise DataError("an output must be a file, and this is a directory", file=out, remedy="Name a file in it.")
        self.out = out
        self._spec = self.out.with_name(f"{self.out.name}.job.json")
        wanted = json.loads(json.dumps(made_from))
        begun = self.out.exists()
        self.fixed: Final[Mapping[str, Any]] = self._checked(wanted) if begun else dict(fixed())
        if not begun:
            self._write_spec({"made_from": wanted, "fixed": self.fixed})

    def rows(self) -> list[Row]:
        """The whole lines that are there; what follows the last of them is passed over.

        Raises:
            DataError: a line that is no JSON object.
        """
        if not self.out.exists():
            return []
        found: list[Row] = []
        for number, line in enumerate(self.out.read_bytes().split(b"\n")[:-1], 1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise DataError(
                    "a line of an output must be a JSON object", file=self.out, line=number, remedy=self._anew
                )
            found.append(row)
        return found

    def keep(self, count: int) -> None:
        """Take off all that follows the first ``count`` lines."""
        if self.out.exists():
            lines = self.out.read_bytes().split(b"\n")[:count]
            os.truncate(self.out, sum(len(line) + 1 for line in lines))

    def add(self, rows: Sequence[Row]) -> None:
        """Write lines, to the disk."""
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        with self.out.open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    @property
    def _anew(self) -> str:
        return f"Name another --out, or remove {self.out} to begin anew."

    def _checked(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._spec.is_file():
            raise DataError(
                f"an output that is there is gone on with, and {self._spec.name} beside it says how it was begun; that "
                "is missing",
                file=self.out,
                remedy=self._anew,
            )
        try:
            spec = json.loads(self._spec.read_text(encoding="utf-8"))
            before, fixed = dict(spec["made_from"]), dict(spec["fixed"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError("not what this command wrote", file=self._spec, remedy=self._anew) from error
        for name, was, now in _differences(before, wanted):
            raise DataError(
                f"an output is gone on with as it was begun, and its {name} was {was!r}",
                value=now,
                file=self.out,
                remedy=self._anew,
            )
        return fixed

    def _write_spec(self, spec: Mapping[str, Any]) -> None:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        new = self._spec.with_name(f".{self._spec.name}.tmp")
        new.write_text(json.dumps(spec, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        new.replace(self._spec)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, what it was, what it is) of each value that differs."""
    for name in dict.fromkeys((*before, *after)):
        was, now = before.get(name), after.get(name)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _differences(was, now, f"{path}{name}.")
        elif was != now:
            yield f"{path}{name}", was, now
