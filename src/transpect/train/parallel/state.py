"""A training state on its way to the disk, and back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from torch import Tensor

Directory = Callable[[], AbstractContextManager[Path]]
Finish = Callable[[Path], None]

TENSORS: Final = "state.safetensors"
"""What one process writes."""


class Stored(Protocol):
    """A state in a directory."""

    @property
    def folder(self) -> Path:
        """Where."""

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors below ``name/``, whole."""


class Pending(Protocol):
    """A state on its way to the disk."""

    def wait(self) -> None:
        """Return when it is there.

        Raises:
            CheckpointError: it could not be written.
        """


class Written:
    """It is there."""

    def wait(self) -> None:
        """Nothing to wait for."""


WRITTEN: Final = Written()
