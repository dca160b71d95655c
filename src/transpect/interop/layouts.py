"""How numbers lie in somebody else's tensor, and in ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


class Layout:
    """A reversible rearrangement of their tensors into ours; no number changes.

    ``pack(unpack(theirs, shapes)) == theirs``, bit for bit.
    """

    moves = True
    """Whether `unpack` gives anything but the very tensors that it was given."""

    def unpack(self, theirs: Sequence[Tensor], shapes: Sequence[torch.Size]) -> list[Tensor]:
        """Our tensors, which have ``shapes``, as views of theirs."""
        raise AssertionError("abstract")

    def pack(self, ours: Sequence[Tensor]) -> list[Tensor]:
        """Their tensors."""
        raise AssertionError("abstract")

    def shapes(self, ours: Sequence[torch.Size]) -> list[torch.Size]:
        """The shapes of their tensors."""
        raise AssertionError("abstract")


@dataclass(frozen=True)
class Plain(Layout):
    """As ours."""

    moves = False

    def unpack(self, theirs: Sequence[Tensor], shapes: Sequence[torch.Size]) -> list[Tensor]:
        return list(theirs)

    def pack(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return list(ours)

    def shapes(self, ours: Sequence[torch.Size]) -> list[torch.Size]:
        return list(ours)


@dataclass(frozen=True)
class Transposed(Layout):
    """A matrix [in, out] where ours is [out, in]; a vector as it is (GPT-2's ``Conv1D``).

    A square one has the same shape either way, so no check of shapes tells the two apart: the table must be right.
    """

    def unpack(self, theirs: Sequence[Tensor], shapes: Sequence[torch.Size]) -> list[Tensor]:
        return [_turned(tensor) for tensor in theirs]

    def pack(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [_turned(tensor) for tensor in ours]

    def shapes(self, ours: Sequence[torch.Size]) -> list[torch.Size]:
        return [shape[::-1] for shape in ours]


@dataclass(frozen=True)
class Fused(Layout):
    """Several of our projections in one, output after output: rows of query, then key, then value.

    Attributes:
        inner: the layout of the one.
    """

    inner: Layout = field(default_factory=Plain)

    def unpack(self, theirs: Sequence[Tensor], shapes: Sequence[torch.Size]) -> list[Tensor]:
        (whole,) = self.inner.unpack(theirs, [_joined(shapes)])
        return list(torch.split(whole, [shape[0] for shape in shapes]))

    def pack(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return self.inner.pack([torch.cat(list(ours))])

    def shapes(self, ours: Sequence[torch.Size]) -> list[torch.Size]:
        return self.inner.shapes([_joined(ours)])


def _joined(shapes: Sequence[torch.Size]) -> torch.Size:
    return torch.Size((sum(shape[0] for shape in shapes), *shapes[0][1:]))


def _turned(tensor: Tensor) -> Tensor:
    return tensor.t() if tensor.ndim == 2 else tensor
