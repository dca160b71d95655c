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
        """Our tensors, which have ``shapes``, as views of theirs where strides can say it."""
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


@dataclass(frozen=True)
class Grouped(Layout):
    """Several of our projections in one, group after group: for each group its rows of query, then key, then value.

    GPT-NeoX and BLOOM have a group a head, Falcon one for each key-value head and its queries.

    Attributes:
        groups: how many; each of our projections is cut into as many equal runs of rows.
    """

    groups: int

    def unpack(self, theirs: Sequence[Tensor], shapes: Sequence[torch.Size]) -> list[Tensor]:
        (whole,) = theirs
        parts = torch.split(self._cut(whole), [shape[0] // self.groups for shape in shapes], 1)
        return [part.flatten(0, 1) for part in parts]

    def pack(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [torch.cat([self._cut(part) for part in ours], 1).flatten(0, 1)]

    def shapes(self, ours: Sequence[torch.Size]) -> list[torch.Size]:
        return [_joined(ours)]

    def _cut(self, rows: Tensor) -> Tensor:
        return rows.reshape(self.groups, -1, *rows.shape[1:])


@dataclass(frozen=True)
class OneRow(Layout):
    """A matrix [1, n] where ours is a vector [n] (BART's ``final_logits_bias``)."""

    def unpack(self, theirs: Sequence[Tensor], shapes: Sequence[torch.Size]) -> list[Tensor]:
        return [tensor[0] for tensor in theirs]

    def pack(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [tensor[None] for tensor in ours]

    def shapes(self, ours: Sequence[torch.Size]) -> list[torch.Size]:
        return [torch.Size((1, *shape)) for shape in ours]


@dataclass(frozen=True)
class Stacked(Layout):
    """The same matrices of many experts in one tensor of three axes: for each expert, the rows of its matrices in turn.

    Attributes:
        experts: how many; our tensors come expert after expert.
    """

    experts: int

    def unpack(self, theirs: Sequence[Tensor], shapes: Sequence[torch.Size]) -> list[Tensor]:
        (whole,) = theirs
        return list(torch.split(whole.flatten(0, 1), [shape[0] for shape in shapes]))

    def pack(self, ours: Sequence[Tensor]) -> list[Tensor]:
        rows = torch.cat(list(ours))
        return [rows.view(self.experts, -1, *rows.shape[1:])]

    def shapes(self, ours: Sequence[torch.Size]) -> list[torch.Size]:
        rows, *rest = _joined(ours)
        return [torch.Size((self.experts, rows // self.experts, *rest))]


def by_rows(layout: Layout) -> bool:
    """Whether a layout only moves rows, so that it can be done on rows of packed numbers."""
    return isinstance(layout, Plain | Grouped | Stacked) or (isinstance(layout, Fused) and by_rows(layout.inner))


def _joined(shapes: Sequence[torch.Size]) -> torch.Size:
    return torch.Size((sum(shape[0] for shape in shapes), *shapes[0][1:]))


def _turned(tensor: Tensor) -> Tensor:
    return tensor.t() if tensor.ndim == 2 else tensor
