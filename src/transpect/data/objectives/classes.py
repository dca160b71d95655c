"""What the objectives that predict classes share: the classes' names, and a head that has as many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError, DataError
from transpect.core.heads import Head, SequenceClass, TokenClass
from transpect.data.documents import Document, Documents

TooLong = Literal["error", "drop", "crop"]

_Wanted = TypeVar("_Wanted", SequenceClass, TokenClass)


def check_names(names: tuple[str, ...] | None) -> None:
    """Refuse names that don't tell classes apart.

    Raises:
        ConfigError: fewer than two, or one that comes twice.
    """
    if names is not None and (len(names) < 2 or len(set(names)) < len(names)):
        raise ConfigError(
            "there must be at least two classes, each with a name of its own",
            value=names,
            remedy="Leave labels out: then they are those of the training documents.",
        )


def names_in(documents: Iterable[Documents], labels_of: Callable[[Document], Iterable[str]]) -> tuple[str, ...]:
    """The names that occur, sorted, numbers by their size: the same whatever the order of the documents.

    Raises:
        ConfigError: documents without end, or fewer than two names.
    """
    several = list(documents)
    if any(each.size is None for each in several):
        raise ConfigError(
            "classes can't be gathered from documents without end", remedy="Name them: data.objective.labels."
        )
    found = {label for each in several for document in each for label in labels_of(document)}
    names = tuple(sorted(found, key=int if all(name.isdecimal() for name in found) else None))
    if len(names) < 2:
        raise ConfigError(
            "the training documents must have at least two classes",
            value=names,
            remedy="Look at what the source takes for the label.",
        )
    return names


def class_of(label: str, numbers: dict[str, int], document: Document) -> int:
    """The number of a class.

    Raises:
        DataError: no such class, with the document's file and line.
    """
    if label not in numbers:
        raise DataError(
            f"a label must be one of the {len(numbers)} classes",
            value=label,
            file=document.file,
            line=document.line,
            remedy=did_you_mean(label, numbers) or "Add it to data.objective.labels, or to the training documents.",
        )
    return numbers[label]


def fitting(head: Head, wanted: _Wanted) -> Head:
    """The head itself where it is of the wanted kind, else the wanted one.

    Raises:
        ConfigError: a head of that kind with another number of classes.
    """
    if not isinstance(head, type(wanted)):
        return wanted
    if head.n_classes != wanted.n_classes:
        raise ConfigError(
            f"the head must have as many classes as there are labels, {wanted.n_classes}",
            value=head.n_classes,
            remedy="Set model.head.n_classes to that, or leave model.head out.",
        )
    return head


def too_long(document: Document, length: int, seq_len: int) -> DataError:
    """What is said of a text that does not fit."""
    return DataError(
        f"a text, with the tokens around it, must have at most seq_len = {seq_len} tokens",
        value=length,
        file=document.file,
        line=document.line,
        remedy="Raise data.seq_len, or set data.objective.too_long to drop or crop.",
    )
