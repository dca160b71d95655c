"""The names of somebody else's tensors as a table, and a checkpoint read and written by it.

In a pattern ``#`` stands for a layer's number and ``*`` for ``weight`` or ``bias``::

    Row("h.#.ln_1.*", "towers.decoder.stack.layers.#.steps.self.branches.self.before.*")

The table is walked from our side: a row whose tensors the model does not have (a bias, say) is void. In patterns of
void tensors ``@`` stands for whatever comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.interop.computed import Computed
from transpect.interop.layouts import Layout, Plain

__all__ = [
    "Alias",
    "Link",
    "Row",
    "Shapes",
    "Table",
    "branch",
    "fill",
    "identity",
    "link",
    "matcher",
    "pack_state",
    "step",
]

Shapes = Mapping[str, torch.Size]


@dataclass(frozen=True)
class Row:
    """One kind of tensor there, and the one or several here that hold the same numbers."""

    theirs: str
    ours: str | tuple[str, ...]
    layout: Layout = field(default_factory=Plain)

    @property
    def parts(self) -> tuple[str, ...]:
        """``ours`` as a tuple."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@dataclass(frozen=True)
class Alias:
    """Another name there for the tensor ``of``. Either may stand for both; where both stand, they must be equal.

    Attributes:
        binding: False for a name that must be there and is not read: it may differ, and is written as a copy.
    """

    theirs: str
    of: str
    binding: bool = True


@dataclass(frozen=True)
class Table:
    """All tensors of a family.

    Attributes:
        body: rows of what stands below the head.
        head: rows of the head.
        aliases: second names.
        void: patterns of tensors that hold nothing a model is made of, e.g. masks that were saved.
        prefix: before each name of the body; written out in aliases, may be left out in void patterns. Checkpoints of
            a body alone go without it.
        renamed: (suffix there, suffix in this table), for names of an older day.
        computed: tensors that follow from the config, by their full names.
        zeros: full names of tensors that are zeros where a checkpoint has none.
        variants: other ways to store the same, which are read and not written.
    """

    body: tuple[Row, ...]
    head: tuple[Row, ...] = ()
    aliases: tuple[Alias, ...] = ()
    void: tuple[str, ...] = ()
    prefix: str = ""
    renamed: tuple[tuple[str, str], ...] = ()
    computed: tuple[Computed, ...] = ()
    zeros: tuple[str, ...] = ()
    variants: tuple[Table, ...] = ()

    def stored_as(self, names: Iterable[str]) -> Table:
        """This table, or that of its variants which alone has rows for some of these names."""
        known = {row.theirs for row in self.rows(bare=True)}
        own = [
            (variant, [matcher(row.theirs) for row in variant.rows(bare=True) if row.theirs not in known])
            for variant in self.variants
        ]
        for name in names if own else ():
            for variant, patterns in own:
                if any(pattern.fullmatch(name.removeprefix(self.prefix)) for pattern in patterns):
                    return variant
        return self

    def rows(self, *, bare: bool) -> list[Row]:
        """Body and head with full names; ``bare`` leaves the prefix out."""
        prefix = "" if bare else self.prefix
        return [*(replace(row, theirs=prefix + row.theirs) for row in self.body), *self.head]

    def is_bare(self, names: Iterable[str]) -> bool:
        """Whether a checkpoint with these names goes without the prefix."""
        return not any(name.startswith(self.prefix) for name in names)


@dataclass(frozen=True)
class Link:
    """One tensor there and the tensors here that it holds, by their full names."""

    theirs: str
    ours: tuple[str, ...]
    layout: Layout


def step(tower: str, name: str) -> str:
    """The path of one step of every layer of a tower: ``step("encoder", "self")`` holds its norm ``after``."""
    return f"towers.{tower}.stack.layers.#.steps.{name}"


def branch(tower: str, name: str) -> str:
    """The path of a branch that is alone in its step; it holds ``before``, ``body`` and ``after_branch``."""
    return f"{step(tower, name)}.branches.{name}"


def identity(shapes: Shapes) -> list[Link]:
    """The links of our own format."""
    return [Link(name, (name,), Plain()) for name in shapes]


def link(rows: Sequence[Row], shapes: Shapes) -> list[Link]:
    """Find the row of each of our tensors.

    Raises:
        CheckpointError: our model has a tensor that the table has no place for.
    """
    found: dict[tuple[int, tuple[str, ...]], dict[int, str]] = {}
    homeless = []
    for name in shapes:
        matches = [
            ((index, match.groups()), place)
            for index, row in enumerate(rows)
            for place, part in enumerate(row.parts)
            if (match := matcher(part).fullmatch(name))
        ]
        assert len(matches) <= 1, f"{len(matches)} rows for {name}"
        if not matches:
            homeless.append(name)
            continue
        ((key, place),) = matches
        found.setdefault(key, {})[place] = name
    if homeless:
        raise CheckpointError("this family has no place for tensors of the model", value=", ".join(homeless[:10]))
    links = []
    for (index, groups), parts in found.items():
        row = rows[index]
        assert len(parts) == len(row.parts), f"{row.theirs} holds parts that the model lacks"
        links.append(Link(fill(row.theirs, groups), tuple(parts[i] for i in range(len(parts))), row.layout))
    return links


def pack_state(state: Mapping[str, Tensor], links: Sequence[Link], aliases: Sequence[Alias] = ()) -> dict[str, Tensor]:
    """Our tensors as theirs, by their names."""
    theirs = {item.theirs: item.layout.pack([state[name] for name in item.ours])[0] for item in links}
    return theirs | {alias.theirs: theirs[alias.of] for alias in aliases if not alias.binding and alias.of in theirs}


_WILD = {"#": r"(\d+)", "*": "(weight|bias)", "@": "(.+)"}


@cache
def matcher(pattern: str) -> re.Pattern[str]:
    """What finds the names that a pattern stands for."""
    return re.compile("".join(_WILD[c] if c in _WILD else re.escape(c) for c in pattern))


def fill(pattern: str, groups: Sequence[str]) -> str:
    """Put what one pattern's wildcards stood for (see `matcher`) into another; both have them in the same order."""
    values = iter(groups)
    return "".join(next(values) if c in _WILD else c for c in pattern)
