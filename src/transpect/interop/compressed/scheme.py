"""The entry ``quantization_config`` of config.json, as far as weights go."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.base.errors import CheckpointError
from transpect.interop.compressed.words import n_words

__all__ = ["METHOD", "PACKED", "Scheme", "scheme_of", "schemes_of"]

METHOD = "compressed-tensors"
PACKED, WHOLE = "pack-quantized", ("int-quantized", "naive-quantized")
STRATEGIES = ("tensor", "channel", "group")
COMPRESSED = ("compressed", "frozen")


@dataclass(frozen=True)
class Scheme:
    """How some modules are stored.

    Attributes:
        targets: names of modules, patterns after ``re:``, or classes of modules such as ``Linear``.
        bits: b of a code.
        symmetric: codes lie about 0, and no zero is stored.
        group: g; None is a scale a row, or one for all.
        packed: whether codes are in words of 32 bits, or one to a byte.
    """

    targets: tuple[str, ...]
    bits: int
    symmetric: bool
    group: int | None
    packed: bool

    def groups(self, d_in: int) -> int:
        """G, of a row of D weights; −1 where it is not whole groups."""
        if self.group is None:
            return 1
        return -1 if d_in % self.group else d_in // self.group

    def stores(self, columns: int, groups: int, shape: Sequence[int], *, packed: bool, zero: bool) -> bool:
        """Whether a tensor with so many columns and scales a row can be of this scheme."""
        expected = n_words(shape[1], self.bits) if packed else shape[1]
        return (
            packed == self.packed and zero != self.symmetric and columns == expected and groups == self.groups(shape[1])
        )


def schemes_of(data: Any) -> tuple[Scheme, ...]:
    """The schemes of a ``quantization_config``.

    Raises:
        CheckpointError: another way to quantise than whole numbers of up to 8 bits in this layout; it is named.
    """
    if not isinstance(data, Mapping):
        raise CheckpointError("quantization_config must be a JSON object", value=data)
    method = data.get("quant_method")
    if method != METHOD:
        raise _refused(f"weights that were quantised by {method!r}", method)
    for part in ("sparsity_config", "transform_config", "kv_cache_scheme"):
        inner = data.get(part)
        if inner and not (part == "sparsity_config" and inner.get("format") in (None, "dense")):
            what = inner.get("format", part) if isinstance(inner, Mapping) else inner
            raise _refused(f"a {part} of {METHOD}", what)
    status = data.get("quantization_status", "compressed")
    if status not in COMPRESSED:
        raise _refused("weights that are still in full and only to be quantised", status)
    groups = data.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise CheckpointError("quantization_config must have config_groups", value=groups)
    return tuple(_scheme(name, group, data.get("format")) for name, group in groups.items())


def _scheme(name: str, group: Any, overall: Any) -> Scheme:
    if not isinstance(group, Mapping):
        raise _refused("a preset scheme without its numbers", name)
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        raise _refused("a group of modules whose weights are not quantised", name)
    form = group.get("format") or overall
    if form != PACKED and form not in WHOLE:
        raise _refused("the format", form)
    bits, kind = weights.get("num_bits", 8), weights.get("type", "int")
    if kind != "int" or not isinstance(bits, int) or not 1 <= bits <= 8:
        raise _refused("weights of the type", f"{kind}{bits}")
    if weights.get("actorder") in ("group", "dynamic"):
        raise _refused("columns in an order of their own (actorder)", weights["actorder"])
    size = weights.get("group_size")
    strategy = weights.get("strategy") or ("group" if size and size > 0 else "channel" if size == -1 else "tensor")
    if strategy not in STRATEGIES or (strategy == "group" and not (isinstance(size, int) and size > 0)):
        raise _refused("scales by", f"{strategy} {size}")
    return Scheme(
        targets=tuple(str(target) for target in group.get("targets") or ()),
        bits=bits,
        symmetric=bool(weights.get("symmetric", True)),
        group=size if strategy == "group" else None,
        packed=form == PACKED,
    )


def scheme_of(
    name: str, schemes: Sequence[Scheme], columns: int, groups: int, shape: Sequence[int], *, packed: bool, zero: bool
) -> Scheme:
    """The scheme of a module: of those that name it, or else fit it by a pattern, or else by its class, the first that
    its tensors are of.

    Raises:
        CheckpointError: none is.
    """
    named = [scheme for scheme in schemes if name in scheme.targets]
    fitting = [scheme for scheme in schemes if any(_fits(target, name) for target in scheme.targets)]
    by_class = [scheme for scheme in schemes if any(target.isidentifier() for target in scheme.targets)]
    for scheme in (*named, *fitting, *by_class):
        if scheme.stores(columns, groups, shape, packed=packed, zero=zero):
            return scheme
    raise CheckpointError(
        "quantization_config has no group of modules that these tensors could be of",
        value=f"{name}: {columns} columns and {groups} scales a row for {list(shape)}",
        remedy="Check that config.json and the weights belong together.",
    )


def _fits(target: str, name: str) -> bool:
    try:
        return target.startswith("re:") and re.match(target[3:], name) is not None
    except re.error as error:
        raise CheckpointError("a target must be a pattern that can be read", value=target) from error


def _refused(what: str, value: object) -> CheckpointError:
    return CheckpointError(
        f"quantised weights are read where they are whole numbers of up to 8 bits in the layout of {METHOD} "
        f"({PACKED}, {', '.join(WHOLE)}), not {what}",
        value=value,
        remedy="Load the model that it was made from, and quantise it here: transpect quantize MODEL --out DIR.",
    )
