"""Which of our linear layers are which modules there, and how the matrices of adapters lie in them.

Axes: N out, D in, R rank.

A module there may hold several of ours (GPT-2's ``c_attn``: query, key and value). Its A is then what all of them read
with, and its B [N₁ + N₂ + …, R] holds their rows, in the order in which the rows of their weights lie. The other way
around, our layers with A's of their own, of rank r each, are one of the sum of their ranks, whose B has blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transpect.adapters import LowRankLinear
from transpect.base.errors import CheckpointError
from transpect.core import ModelConfig
from transpect.interop.blank import shapes
from transpect.interop.checkpoint import as_family
from transpect.interop.layouts import Fused, Grouped, Layout, Plain, Transposed
from transpect.interop.tensors import Link, Shapes, identity

__all__ = ["Names", "Place", "names_of"]


@dataclass(frozen=True)
class Place:
    """A module there.

    Attributes:
        module: its name.
        ours: the names of our layers in it, in their order.
        layout: of rows.
        rows: N of each of ours.
    """

    module: str
    ours: tuple[str, ...]
    layout: Layout
    rows: tuple[int, ...]

    def parted(self, rows: Tensor) -> list[Tensor]:
        """Rows there [N₁ + N₂ + …, …] as ours, each in memory of its own."""
        sizes = [torch.Size((n, *rows.shape[1:])) for n in self.rows]
        return [part.contiguous().clone() for part in self.layout.unpack([rows], sizes)]

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Our rows as those there."""
        return self.layout.pack(parts)[0].contiguous()


@dataclass(frozen=True)
class Names:
    """The names of a family for a model.

    Attributes:
        links: of all tensors, by our names.
        places: of the linear layers that can have an adapter there.
        aliases: further names of tensors, and whose they are.
        prefix: what a checkpoint of the body alone leaves out.
        family: whether others know these names.
    """

    links: tuple[Link, ...]
    places: tuple[Place, ...]
    aliases: Mapping[str, str]
    prefix: str
    family: bool

    def place(self, ours: str) -> Place:
        """Where one of our layers is there.

        Raises:
            CheckpointError: in a module that holds no plain rows.
        """
        found = next((place for place in self.places if ours in place.ours), None)
        if found is None:
            raise CheckpointError(
                "this layer is stored there in a way that an adapter can't be",
                value=ours,
                remedy="Leave it out of the adapter's targets.",
            )
        return found


def names_of(config: ModelConfig) -> Names:
    """The names by which `transformers` knows the tensors of a config's model; ours, where it knows no such model."""
    kind, data = as_family(config)
    ours = shapes(config)
    if kind.family is None:
        links, table = identity(ours), None
    else:
        table = kind.family.table(config)
        links = kind.family.links(config, ours, bare=data["architectures"][0] in kind.family.bare)
    return Names(
        tuple(links),
        tuple(place for item in links if (place := _place(item, ours)) is not None),
        {} if table is None else {alias.theirs: alias.of for alias in table.aliases},
        "" if table is None else table.prefix,
        family=kind.family is not None,
    )


def _place(item: Link, ours: Shapes) -> Place | None:
    layout = _of_rows(item.layout)
    one_matrix = item.theirs.endswith(".weight") and len(ours[item.ours[0]]) == 2
    if layout is None or not one_matrix or ".experts." in item.theirs:  # which are one module there, all of them
        return None
    names = tuple(name.removesuffix(".weight") for name in item.ours)
    return Place(item.theirs.removesuffix(".weight"), names, layout, tuple(ours[name][0] for name in item.ours))


def _of_rows(layout: Layout) -> Layout | None:
    """How the rows lie once a matrix is [out, in]."""
    if isinstance(layout, Transposed):
        return Plain()
    if isinstance(layout, Fused):
        inner = _of_rows(layout.inner)
        return None if inner is None else Fused(inner)
    return layout if isinstance(layout, Plain | Grouped) else None


def is_shared(adapters: Sequence[LowRankLinear]) -> bool:
    """Whether several adapters read with the same A."""
    first, *others = (adapter.a.weight for adapter in adapters)
    return all(other.shape == first.shape and torch.equal(other, first) for other in others)
