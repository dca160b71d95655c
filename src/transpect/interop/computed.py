"""Tensors of a checkpoint that are no weights, but follow from the config: written for others, checked, not kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError

TOLERANCE = 1e-2
"""What half precision and another order of computing may change in a number up to 1."""


@dataclass(frozen=True)
class Computed:
    """A tensor of theirs that `make` gives for a shape, e.g. a table of sinusoids.

    Attributes:
        theirs: its name.
        shape: of the one that is written.
        make: computes it for a shape.
        written: False where nobody looks for it any more.
    """

    theirs: str
    shape: tuple[int, ...]
    make: Callable[[tuple[int, ...]], Tensor]
    written: bool = True

    def tensor(self, dtype: torch.dtype) -> Tensor:
        """The tensor to write."""
        return self.make(self.shape).to(dtype)

    def check(self, stored: Tensor) -> None:
        """Compare one that is stored, of any length.

        Raises:
            CheckpointError: it holds other numbers.
        """
        same = stored.ndim == len(self.shape) and stored.shape[1:] == self.shape[1:]
        if not same or not torch.allclose(
            stored.double(), self.make(tuple(stored.shape)).double(), rtol=0.0, atol=TOLERANCE
        ):
            raise CheckpointError(
                f"{self.theirs} follows from the config, and the checkpoint has other numbers in it",
                remedy="It was trained or damaged; such a model can't be built in this family.",
            )
