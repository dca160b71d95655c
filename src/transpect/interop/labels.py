"""What the classes of a model are called: ``id2label`` and ``problem_type`` of its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from transpect.base.errors import CheckpointError, ConfigError
from transpect.core import Head, SequenceClass, TokenClass
from transpect.interop.sources import open_source

__all__ = ["Labels", "read_labels"]

MULTI = "multi_label_classification"


@dataclass(frozen=True)
class Labels:
    """The classes of a head.

    Attributes:
        names: of each class; none where the head tells no classes.
        independent: whether a text can be in several classes at once, each with a probability of its own (a sigmoid);
            otherwise it is in one (a softmax).
    """

    names: tuple[str, ...] = ()
    independent: bool = False

    @classmethod
    def of(cls, head: Head) -> Self:
        """Names where a checkpoint gives none, as other tools make them up: LABEL_0, LABEL_1, …"""
        count = head.n_classes if isinstance(head, SequenceClass | TokenClass) else 0
        return cls(tuple(f"LABEL_{i}" for i in range(count)))

    def checked(self, head: Head) -> Self:
        """These labels, if the head has as many classes.

        Raises:
            ConfigError: it has not.
        """
        expected = len(Labels.of(head).names)
        if len(self.names) != expected or len(set(self.names)) != expected:
            raise ConfigError(
                f"there must be {expected} labels, each of its own, one for each class of the head {head.kind}",
                value=self.names,
                remedy="Leave them out for LABEL_0, LABEL_1, …",
            )
        return self

    def entries(self) -> dict[str, Any]:
        """What says so in a config.json."""
        if not self.names:
            return {}
        return {
            "id2label": {str(i): name for i, name in enumerate(self.names)},
            "label2id": {name: i for i, name in enumerate(self.names)},
            **({"problem_type": MULTI} if self.independent else {}),
        }


def read_labels(place: Path, head: Head) -> Labels:
    """The labels of a checkpoint; a class that its config does not name is called LABEL_i.

    Raises:
        CheckpointError: names that are no texts, or two classes of one name.
    """
    source = open_source(place)
    made_up = Labels.of(head)
    given: Any = source.config.get("id2label") or {}
    named = given.items() if isinstance(given, Mapping) else enumerate(given)
    names = {str(number): name for number, name in named}
    found = tuple(names.get(str(i), name) for i, name in enumerate(made_up.names))
    if not all(isinstance(name, str) for name in found) or len(set(found)) < len(found):
        raise CheckpointError(
            "id2label must give each class a name of its own",
            value=given,
            file=source.file,
            remedy="Correct it, or remove it.",
        )
    return Labels(found, source.config.get("problem_type") == MULTI)
