"""Data sets of the package ``datasets``: directories that `save_to_disk` wrote, and names of the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from transpect.base.errors import DataError, first_line
from transpect.data.documents import Document
from transpect.data.skipping import OnBadLine
from transpect.data.sources.base import Streamed
from transpect.data.sources.fields import document_of, no_such_field

HUB: Final = "hf:"
_MARKS: Final = ("dataset_dict.json", "state.json")


@final
@dataclass(frozen=True)
class HubDataset(Streamed, kind="datasets"):
    """One document a row, in the order of the data set; other columns are not read.

    Attributes:
        path: a directory that `save_to_disk` wrote; or ``hf:OWNER/NAME``, optionally with ``@REVISION``, which is
            downloaded. Nothing of the data set's own code runs.
        config: of a data set that has several, which; None is the only one.
        split: of a data set with several, which.
        field: the column of the text; of pairs, of the source.
        target: of pairs, the column of the target; None is single texts.
        on_bad_line: ``error``, or ``skip`` and count it. A line is a row here, counted from 1.
    """

    path: str
    config: str | None = None
    split: str = "train"
    field: str = "text"
    target: str | None = None
    on_bad_line: OnBadLine = "error"

    def items(self) -> Iterator[Document | DataError]:
        table = self._table()
        columns = [name for name in (self.field, self.target) if name is not None]
        for name in columns:
            if name not in table.column_names:
                raise no_such_field(name, dict.fromkeys(table.column_names), self.path, None)
        named = None if self.target is None else getattr(table.features[self.target], "names", None)
        for number, row in enumerate(table.select_columns(columns), 1):
            try:
                yield document_of(self._named(row, named), self.field, self.target, self.path, number)
            except DataError as error:
                yield error

    def _named(self, row: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
        """A row with the name of its class, where the data set keeps names and rows hold their numbers; a row without a
        class has −1."""
        number = row.get(self.target or "")
        if names is None or not isinstance(number, int):
            return row
        return {**row, str(self.target): names[number] if 0 <= number < len(names) else None}

    def _table(self) -> Any:
        try:
            import datasets
        except ImportError as error:
            raise DataError(
                "a data set of this kind is read by the package datasets, which is not installed",
                file=self.path,
                remedy="pip install 'transpect[data]'.",
            ) from error
        if not self.path.startswith(HUB) and not is_saved_dataset(Path(self.path)):
            raise DataError(
                "a data set is a directory that save_to_disk wrote, or hf:OWNER/NAME",
                file=self.path,
                remedy="Check the path. A name of the hub needs hf: before it, since it is downloaded.",
            )
        try:
            found = self._open(datasets)
        except DataError:
            raise
        except Exception as error:  # whatever the client, the hub or a damaged file raises
            raise DataError(f"the data set can't be opened: {first_line(error)}", file=self.path) from error
        if not isinstance(found, datasets.DatasetDict):
            return found
        if self.split not in found:
            raise DataError(
                "a data set with several splits must have the one that is asked for",
                value=self.split,
                file=self.path,
                remedy=f"It has {', '.join(found)}: set `split`.",
            )
        return found[self.split]

    def _open(self, datasets: Any) -> Any:
        if not self.path.startswith(HUB):
            return datasets.load_from_disk(self.path)
        name, _, revision = self.path.removeprefix(HUB).partition("@")
        return datasets.load_dataset(name, self.config, split=self.split, revision=revision or None)


def is_saved_dataset(path: Path) -> bool:
    """Whether a directory is one that `save_to_disk` wrote."""
    return any((path / mark).is_file() for mark in _MARKS)
