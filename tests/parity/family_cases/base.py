"""What a row of the parity tables says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

__all__ = ["IDS", "LENGTHS", "PAD", "Case", "Options"]

Options = dict[str, Any]

LENGTHS = (40, 37, 31)  # of the rows of a padded batch
PAD = 96
IDS: Options = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": PAD}


@dataclass(frozen=True)
class Case:
    """A model of theirs.

    Attributes:
        name: of the test.
        config: their config class.
        model: their model class.
        options: of the config.
        prepare: changes a new model before its weights are drawn.
        generates: False where it can't be asked to write, or not by the same rule.
        row_by_row: their positions count padding, so that the right answer is each row alone without padding.
        unread: parameters of theirs that nothing reads.
        narrows: their last hidden state has been narrowed to the width of token vectors, which is the head's work here.
        first_position: what they number the first token of a row; None where they do it themselves, by the ids.
        memory: (name in a checkpoint, name in their model), parts of names, where they differ.
    """

    name: str
    config: Callable[..., Any]
    model: Callable[[Any], nn.Module]
    options: Options
    prepare: Callable[[nn.Module], None] = lambda model: None
    generates: bool = True
    row_by_row: bool = False
    unread: tuple[str, ...] = ()
    narrows: bool = False
    first_position: int | None = 0
    memory: tuple[tuple[str, str], ...] = ()

    def in_memory(self, name: str) -> str:
        """What their model calls a tensor of their checkpoint."""
        for stored, held in self.memory:
            name = name.replace(stored, held)
        return name
