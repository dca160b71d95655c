"""What the choice of a row's next token may depend on besides the logits: its own past, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Constraint(Protocol):
    """Which tokens may come next, as a function of those written."""

    def mask(self, written: tuple[int, ...]) -> Tensor | None:
        """[V] bool, with at least one True; None allows all."""

    def complete(self, written: tuple[int, ...]) -> bool:
        """Whether the output ends here by itself, since nothing may follow and no token would say so."""


class Free:
    """Everything may come next."""

    def mask(self, written: tuple[int, ...]) -> Tensor | None:
        return None

    def complete(self, written: tuple[int, ...]) -> bool:
        return False


FREE: Constraint = Free()


@dataclass(frozen=True)
class Trace:
    """The past of one row.

    Attributes:
        prompt: ids that the decoder began with. There is no padding in it.
        written: ids that were chosen since.
        constraint: what the output must be like.
        source: ids that the encoder of an encoder–decoder read.
    """

    prompt: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    constraint: Constraint = FREE
    source: tuple[int, ...] | None = None

    def then(self, *tokens: int) -> Trace:
        """The past after these tokens."""
        return Trace(self.prompt, (*self.written, *tokens), self.constraint, self.source)  # a third of `replace`
