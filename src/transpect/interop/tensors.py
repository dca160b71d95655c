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
from pathlib import Path

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.interop.computed import Computed
from transpect.interop.layouts import Layout, Plain
from transpect.interop.weights import ALIGNED, Weights

__all__ = ["Alias", "Link", "Row", "Table", "branch", "identity", "link", "load_state", "pack_state", "step"]

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
            (variant, [_compiled(row.theirs) for row in variant.rows(bare=True) if row.theirs not in known])
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
            if (match := _compiled(part).fullmatch(name))
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
        links.append(Link(_fill(row.theirs, groups), tuple(parts[i] for i in range(len(parts))), row.layout))
    return links


def pack_state(state: Mapping[str, Tensor], links: Sequence[Link], aliases: Sequence[Alias] = ()) -> dict[str, Tensor]:
    """Our tensors as theirs, by their names."""
    theirs = {item.theirs: item.layout.pack([state[name] for name in item.ours])[0] for item in links}
    return theirs | {alias.theirs: theirs[alias.of] for alias in aliases if not alias.binding and alias.of in theirs}


def load_state(
    weights: Weights,
    table: Table,
    links: Sequence[Link],
    shapes: Shapes,
    *,
    file: Path,
    dtype: torch.dtype | None,
    device: torch.device,
) -> dict[str, Tensor]:
    """Our tensors from theirs. What can stay a view of the mapped file does; all else is copied once, one by one.

    Args:
        dtype: of the result; None is as stored (the widest one, where they differ).

    Raises:
        CheckpointError: tensors are missing, unexpected, mis-shaped or not floating; names up to ten of each.
    """
    bare = table.is_bare(weights)
    names = _Names(weights, table, bare=bare)
    sources = {item.theirs: names.find(item.theirs) for item in links}
    missing = [theirs for theirs, source in sources.items() if source is None and theirs not in table.zeros]
    here = {theirs: source for theirs, source in sources.items() if source is not None}
    extra = names.unexpected(here)
    wrong = []
    for item in links:
        (expected,) = item.layout.shapes([shapes[name] for name in item.ours])
        source = here.get(item.theirs)
        if source is not None and weights.shapes[source] != tuple(expected):
            wrong.append(f"{source}: {list(weights.shapes[source])} instead of {list(expected)}")
    faults = [f"{_count(of)} {what} ({_some(of)})" for what, of in _kinds(missing, extra, wrong) if of]
    if faults:
        raise CheckpointError(
            f"the weights must be those of the model that the config describes: {'; '.join(faults)}",
            file=file,
            remedy="Check that config.json and the weights belong together.",
        )
    quantised = [name for name in here.values() if not weights.dtypes[name].is_floating_point]
    if quantised:
        raise CheckpointError("weights must be floating-point numbers", value=_some(quantised), file=file)
    dtype = dtype or _widest(weights.dtypes[name] for name in here.values())
    state: dict[str, Tensor] = {}
    for item in links:
        if item.theirs not in here:
            state |= {name: torch.zeros(shapes[name], dtype=dtype, device=device) for name in item.ours}
            continue
        parts = _read(weights, here[item.theirs], item, [shapes[name] for name in item.ours], dtype, device)
        state |= zip(item.ours, parts, strict=True)
    return state


class _Names:
    """Which tensor of a checkpoint stands for a name of the table."""

    def __init__(self, weights: Weights, table: Table, *, bare: bool) -> None:
        self._weights = weights
        self._prefix = table.prefix
        self._old = table.renamed
        self._aliases = [
            Alias(alias.theirs.removeprefix(table.prefix), alias.of.removeprefix(table.prefix), alias.binding)
            if bare
            else alias
            for alias in table.aliases
        ]
        self._void = [_compiled(pattern) for pattern in table.void]
        self._computed = {item.theirs: item for item in table.computed}

    def find(self, theirs: str) -> str | None:
        """The tensor of this name, of its older name, or of an alias."""
        stand_ins = (alias.theirs for alias in self._aliases if alias.of == theirs)
        candidates = [theirs, *stand_ins]
        for old, new in self._old:
            candidates += [name.removesuffix(new) + old for name in candidates if name.endswith(new)]
        return next((name for name in candidates if name in self._weights), None)

    def unexpected(self, used: Mapping[str, str]) -> list[str]:
        """Tensors that no row reads, except void ones and equal copies.

        Raises:
            CheckpointError: a second name holds other numbers than the first, a computed one others than it should.
        """
        left = []
        for name in self._weights.keys() - set(used.values()):
            bare = name.removeprefix(self._prefix)
            if any(pattern.fullmatch(form) for pattern in self._void for form in (name, bare)):
                continue
            computed = self._computed.get(name, self._computed.get(self._prefix + name))
            if computed is not None:
                computed.check(self._weights.passing(name))
                continue
            alias = next((alias for alias in self._aliases if alias.theirs == name), None)
            if alias is None or alias.of not in used:
                left.append(name)
            elif alias.binding and not self._equal(name, used[alias.of]):
                raise CheckpointError(
                    f"{name} and {used[alias.of]} must be equal, since the config ties them, and they differ",
                    remedy="Set tie_word_embeddings to false in config.json if they are meant to differ.",
                )
        return sorted(left)

    def _equal(self, one: str, other: str) -> bool:
        return torch.equal(self._weights.passing(one), self._weights.passing(other))


def _read(
    weights: Weights, name: str, item: Link, shapes: Sequence[torch.Size], dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    if not item.layout.moves:
        if weights.dtypes[name] == dtype and device.type == "cpu":
            mapped = weights[name]
            # some kernels of a BLAS add in another order at another alignment: a model must compute the same bits
            # after saving and loading as before
            if mapped.data_ptr() % ALIGNED == 0:
                return [mapped]
        return [weights.copy(name, dtype, device)]
    parts = item.layout.unpack([weights.passing(name)], shapes)
    return [torch.empty(part.shape, dtype=dtype, device=device).copy_(part) for part in parts]


def _kinds(missing: list[str], extra: list[str], wrong: list[str]) -> list[tuple[str, list[str]]]:
    return [("missing", missing), ("unexpected", extra), ("mis-shaped", wrong)]


def _count(names: list[str]) -> str:
    return f"{len(names)} tensor is" if len(names) == 1 else f"{len(names)} tensors are"


def _some(names: list[str], limit: int = 10) -> str:
    return ", ".join(names[:limit]) + (f", and {len(names) - limit} more" if len(names) > limit else "")


def _widest(dtypes: Iterable[torch.dtype]) -> torch.dtype:
    first, *rest = dtypes
    for dtype in rest:
        first = torch.promote_types(first, dtype)
    return first


_WILD = {"#": r"(\d+)", "*": "(weight|bias)", "@": "(.+)"}


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_WILD[c] if c in _WILD else re.escape(c) for c in pattern))


def _fill(pattern: str, groups: Sequence[str]) -> str:
    """Put what the wildcards of our pattern stood for into theirs; both have them in the same order."""
    values = iter(groups)
    return "".join(next(values) if c in _WILD else c for c in pattern)
