"""What every strategy is: options, and a way from logits to tokens for a batch of requests that share them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from transpect.core import ModelConfig
    from transpect.decode.params import GenerationParams
    from transpect.decode.request import Event
    from transpect.decode.row import Row
    from transpect.decode.stepper import Steps


def going_on(rows: Sequence[Row], last: Sequence[Event]) -> list[int]:
    """The places of the rows that neither their last event has ended nor a caller has cancelled."""
    return [
        place
        for place, (row, event) in enumerate(zip(rows, last, strict=True))
        if event.finish_reason is None and not row.cancelled
    ]


class Strategy(ABC):
    """How the tokens of an output are found. Children are frozen dataclasses that own their options, under the names
    that the field has for them; requests with equal strategies are decoded in batches.

    Attributes:
        trigger: the option whose presence chooses this strategy; empty for the one that is there without any.
        off: values of the trigger that mean that it is not asked for.
        resumes: whether an output can be taken up after any of its tokens, and goes on as without a break.
    """

    trigger: ClassVar[str] = ""
    off: ClassVar[tuple[object, ...]] = ()
    resumes: ClassVar[bool] = False

    @property
    def takes_back(self) -> bool:
        """Whether it needs a cache that lets tokens be forgotten."""
        return False

    @abstractmethod
    def width(self, params: GenerationParams) -> int:
        """How many rows of the model's batch each row of `spread` takes."""

    @abstractmethod
    def check(self, params: GenerationParams, config: ModelConfig) -> None:
        """Refuse what can't be done, before anything runs.

        Raises:
            GenerationError: it can't.
        """

    @abstractmethod
    def spread(self, row: Row) -> list[Row]:
        """The rows that a batch begins with for this one, of which each is a row of the prefill."""

    @abstractmethod
    def decode(self, steps: Steps, rows: Sequence[Row]) -> Iterator[Event]:
        """Decode one batch, each row until it ends.

        Args:
            steps: at the beginning, with a row for each of ``rows``.
            rows: what `spread` gave; each asks for at least one token.
        """
