"""A checkpoint's tensors become ours, or it is said what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from transpect.base.errors import CheckpointError
from transpect.interop.quantising import Quantising
from transpect.interop.tensors import Alias, Link, Shapes, Table, matcher
from transpect.interop.weights import Buffer, Weights

__all__ = ["fits", "load_state"]

CPU = torch.device("cpu")
WIDE = (torch.float32, torch.float64)


def load_state(
    weights: Weights,
    table: Table,
    links: Sequence[Link],
    shapes: Shapes,
    *,
    file: Path,
    dtype: torch.dtype | None,
    device: torch.device,
    quantising: Quantising | None = None,
) -> dict[str, Tensor]:
    """Our tensors from theirs. What can stay a view of the mapped file does; all else is copied once, one by one.

    Args:
        dtype: of the result; None is as stored (the widest one, where they differ).
        quantising: puts weights into formats as they come, which are then not in the result.

    Raises:
        CheckpointError: tensors are missing, unexpected, mis-shaped or not floating; names up to ten of each.
    """
    names = _Names(weights, table)
    here, faults = _compare(weights, names, links, shapes)
    said = [f"{_count(of)} {what} ({_some(of)})" for what, of in faults.items() if of]
    if said:
        raise CheckpointError(
            f"the weights must be those of the model that the config describes: {'; '.join(said)}",
            file=file,
            remedy="Check that config.json and the weights belong together.",
        )
    quantised = [name for name in here.values() if not weights.dtypes[name].is_floating_point]
    if quantised:
        raise CheckpointError("weights must be floating-point numbers", value=_some(quantised), file=file)
    dtype = dtype or _widest(weights.dtypes[name] for name in here.values())
    state: dict[str, Tensor] = {}
    buffer = Buffer()
    for item in links:
        if item.theirs not in here:  # `Table.zeros`
            state |= {name: torch.zeros(shapes[name], dtype=dtype, device=device) for name in item.ours}
            continue
        wanted = [shapes[name] for name in item.ours]
        if quantising is not None and quantising.keeps(item, here[item.theirs], weights, wanted):
            continue
        parts = _read(weights, here[item.theirs], item, wanted, dtype, device, buffer)
        for name, part in zip(item.ours, parts, strict=True):
            if quantising is None or not quantising.takes(name, part):
                state[name] = part
    if quantising is not None:
        quantising.cast(dtype)
    return state


def fits(weights: Weights, table: Table, links: Sequence[Link], shapes: Shapes) -> bool:
    """Whether `load_state` would find every tensor, of the right shape, and no other."""
    try:
        _, faults = _compare(weights, _Names(weights, table), links, shapes)
    except CheckpointError:
        return False
    return not any(faults.values())


def _compare(
    weights: Weights, names: _Names, links: Sequence[Link], shapes: Shapes
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The tensor that stands for each name of the table, and what is wrong, by kind."""
    sources = {item.theirs: names.find(item.theirs) for item in links}
    missing = [theirs for theirs, source in sources.items() if source is None and theirs not in names.zeros]
    here = {theirs: source for theirs, source in sources.items() if source is not None}
    extra = names.unexpected(here)
    wrong = []
    for item in links:
        (expected,) = item.layout.shapes([shapes[name] for name in item.ours])
        source = here.get(item.theirs)
        if source is not None and weights.shapes[source] != tuple(expected):
            wrong.append(f"{source}: {list(weights.shapes[source])} instead of {list(expected)}")
    return here, {"missing": missing, "unexpected": extra, "mis-shaped": wrong}


class _Names:
    """Which tensor of a checkpoint stands for a name of the table."""

    def __init__(self, weights: Weights, table: Table) -> None:
        self._weights = weights
        self._prefix = table.prefix
        self._old = table.renamed
        left_out = table.prefix if table.is_bare(weights) else ""
        self._aliases = [
            Alias(alias.theirs.removeprefix(left_out), alias.of.removeprefix(left_out), alias.binding)
            for alias in table.aliases
        ]
        self._void = [matcher(pattern) for pattern in table.void]
        self.zeros = table.zeros
        self._computed = {item.theirs: item for item in table.computed}

    def find(self, theirs: str) -> str | None:
        """The tensor of this name, of its older name, or of an alias."""
        stand_ins = (alias.theirs for alias in self._aliases if alias.of == theirs)
        candidates = [theirs, *stand_ins]
        for old, new in self._old:
            candidates += [name.removesuffix(new) + old for name in candidates if name.endswith(new)]
        return next((name for name in candidates if name in self._weights.shapes), None)

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
        shapes = self._weights.shapes
        return shapes[one] == shapes[other] and torch.equal(self._weights.passing(one), self._weights.passing(other))


def _read(
    weights: Weights,
    name: str,
    item: Link,
    shapes: Sequence[torch.Size],
    dtype: torch.dtype,
    device: torch.device,
    buffer: Buffer,
) -> list[Tensor]:
    if weights.dtypes[name] == dtype and device == CPU:
        kept = weights[name]
        parts = item.layout.unpack([kept], shapes)
        if all(_usable(part, kept) for part in parts):
            return parts
    if not item.layout.moves:
        return [weights.copy(name, dtype, device)]
    return [_copied(part, dtype, device, buffer) for part in item.layout.unpack([weights.passing(name)], shapes)]


def _usable(part: Tensor, whole: Tensor) -> bool:
    """Whether a part of a mapped tensor can be used where it stands: a view whose rows or columns have no gaps.

    A matrix that is stored transposed stays so, and a linear layer reads it by its strides; to turn it over would take
    many times as long as all the rest of loading. A BLAS may add in another order then, as it may at an odd multiple of
    8 bytes, where files of others put their numbers: the last bit of a product can differ from that of the model that
    was saved. Whoever needs the very same bits loads into a model that exists (`load_state_dict`), as training does.

    In half precision it is turned over: where there is no BLAS for it, products by columns take ten times as long.
    """
    mapped = part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    turned = part.ndim == 2 and 1 in part.stride() and part.dtype in WIDE
    return mapped and (part.is_contiguous() or turned)


def _copied(part: Tensor, dtype: torch.dtype, device: torch.device, buffer: Buffer) -> Tensor:
    """A tensor of its own without gaps; what may stay transposed does (see `_usable`).

    A transposed matrix that is turned over is first brought to where torch does it block by block, which is several
    times faster than one number after another: the same dtype, and rows without gaps.
    """
    if part.ndim == 2 and not part.is_contiguous() and part.stride(0) == 1:
        rows = part.t()
        if dtype in WIDE and device == CPU:
            return torch.empty(rows.shape, dtype=dtype).copy_(rows).t()
        if dtype != part.dtype or not rows.is_contiguous():
            rows = buffer.tensor(rows.shape, dtype).copy_(rows)
        part = rows.t()
    return torch.empty(part.shape, dtype=dtype, device=device).copy_(part)


def _count(names: list[str]) -> str:
    return f"{len(names)} tensor is" if len(names) == 1 else f"{len(names)} tensors are"


def _some(names: list[str], limit: int = 10) -> str:
    return ", ".join(names[:limit]) + (f", and {len(names) - limit} more" if len(names) > limit else "")


def _widest(dtypes: Iterable[torch.dtype]) -> torch.dtype:
    first, *rest = dtypes
    for dtype in rest:
        first = torch.promote_types(first, dtype)
    return first
