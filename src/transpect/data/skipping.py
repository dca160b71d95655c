"""Lines that can't be read: the first one is an error, or all of them are counted and passed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, final

from transpect.base.errors import DataError

OnBadLine = Literal["error", "skip"]

NAMED: Final = 3
"""How many of the lines that were passed over are named."""


@final
@dataclass(frozen=True)
class Skipped:
    """What was passed over.

    Attributes:
        count: how many lines.
        named: what was wrong with the first of them, each with file and line.
    """

    count: int = 0
    named: tuple[str, ...] = ()

    def __add__(self, other: Skipped) -> Skipped:
        return Skipped(self.count + other.count, (*self.named, *other.named)[:NAMED])

    def __str__(self) -> str:
        more = f"; and {self.count - len(self.named):,} more" if self.count > len(self.named) else ""
        return f"{self.count:,} bad line{'' if self.count == 1 else 's'} skipped: {'; '.join(self.named)}{more}"


NOTHING_SKIPPED: Final = Skipped()


@final
class BadLines:
    """Counts bad lines while a source is read."""

    def __init__(self) -> None:
        self.skipped = NOTHING_SKIPPED

    def take(self, error: DataError, policy: OnBadLine) -> None:
        """Count a line.

        Raises:
            DataError: the policy is ``error``: this one.
        """
        if policy == "error":
            raise error
        self.skipped += Skipped(1, (str(error),))
