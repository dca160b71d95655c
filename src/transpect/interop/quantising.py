"""Weights put into few bits while they are loaded, tensor by tensor, so that no model in full ever stands in memory.

Axes: N out, D in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from transpect.base.errors import CheckpointError, ConfigError
from transpect.core import Transformer
from transpect.core.heads import Projection
from transpect.interop.gguf import GgufWeights
from transpect.interop.layouts import Fused, Grouped, Layout, Plain, Stacked
from transpect.interop.tensors import Link
from transpect.interop.weights import Weights
from transpect.quant import Format, GgufBlocks, Int8, Plan, QuantEmbedding, format_named
from transpect.quant.formats import Stored
from transpect.quant.linear import Quantised
from transpect.quant.rounding import rounded
from transpect.quant.swap import TABLE, Target, swap, targets

__all__ = ["KEEP", "Quantising", "quantising"]

KEEP = "keep"
"""What leaves a GGUF file's blocks as they are, in place of a format's name."""

CHUNK = 2**18  # weights at once: they stay in the processor's cache


@dataclass
class Quantising:
    """What `load_state` asks before it keeps a tensor.

    Attributes:
        model: blank; its modules are swapped as their weights come.
        plan: which take which format; None keeps the blocks of the file where it has any.
    """

    model: Transformer
    plan: Plan | None
    _targets: dict[str, Target] = field(init=False)
    _taken: dict[nn.Module, bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        found = _every(self.model) if self.plan is None else targets(self.model, self.plan)
        modules = {target.module: target for target in found}
        self._targets = {
            f"{name}.weight": modules[module]
            for name, module in self.model.named_modules(remove_duplicate=False)
            if module in modules
        }

    def keeps(self, item: Link, source: str, weights: Weights, shapes: Sequence[torch.Size]) -> bool:
        """Whether the tensor stays in the blocks of its file; then it was put where it belongs."""
        if self.plan is not None or not isinstance(weights, GgufWeights) or not _by_rows(item.layout):
            return False
        if any(name not in self._targets for name in item.ours):
            return False
        kept = weights.blocks(source)
        if kept is None:
            return False
        block, rows = kept
        parts = item.layout.unpack([rows], [torch.Size((shape[0], rows.shape[-1])) for shape in shapes])
        for name, part in zip(item.ours, parts, strict=True):
            self._put(name, GgufBlocks(block), {"packed": part.reshape(-1, part.shape[-1])})
        return True

    def takes(self, name: str, weight: Tensor) -> bool:
        """Whether a weight of ours takes a format; then it was rounded and put where it belongs."""
        if self.plan is None or name not in self._targets:
            return False
        format = self._targets[name].format
        self._put(name, format, _plain(weight) if format == Int8() else rounded(weight, format))
        return True

    def _put(self, name: str, format: Format, stored: Stored) -> None:
        target = self._targets[name]
        if target.module not in self._taken:
            self._taken[target.module] = True
            swap(self.model, Target(target.name, target.module, format), stored)

    def stored(self) -> dict[str, Tensor]:
        """All that was put into formats, by the names that the model has for it now."""
        return {name: value for name, value in self.model.state_dict().items() if not value.is_meta}

    def cast(self, dtype: torch.dtype) -> None:
        """Token vectors are given in a dtype, whatever the table is stored in."""
        for module in self.model.modules():
            if isinstance(module, QuantEmbedding):
                module.like = torch.empty(0, dtype=dtype, device=module.like.device)


def quantising(model: Transformer, how: str | Format | Plan | None) -> Quantising | None:
    """How a blank model's weights are stored once they are read.

    Args:
        how: a format for linear layers; the name of one, with which the token table and the head are in 8 bits; a
            plan; `KEEP`; or None, which leaves all in full.

    Raises:
        ConfigError: no such format, or one that can't store this model's weights.
    """
    if how is None:
        return None
    if isinstance(how, str):
        plan = None if how == KEEP else Plan(format_named(how), _in_eight_bits(model))
    else:
        plan = how if isinstance(how, Plan) else Plan(how)
    return Quantising(model, plan)


def in_full(model: Transformer) -> None:
    """See that no weight is in a format: a checkpoint directory is written of whole weights only.

    Raises:
        CheckpointError: some are; they are named.
    """
    names = [name for name, module in model.named_modules() if isinstance(module, Quantised)]
    if names:
        more = "" if len(names) == 1 else f" and {len(names) - 1} more"
        raise CheckpointError(
            "a model with quantised weights can't be saved as a checkpoint",
            value=f"{names[0]}{more}",
            remedy="Save the model that it was made from, and quantise while loading: load_model(path, quant=…).",
        )


def _in_eight_bits(model: Transformer) -> dict[str, Format | None]:
    """The token table, and a head's own table: what is nearest to the words, and much of a small model."""
    own = [
        f"head.{name}"
        for name, each in model.head.named_modules()
        if isinstance(each, Projection) and each.weight is not None
    ]
    return {name: Int8() for name in (TABLE, *own)}


def _every(model: Transformer) -> list[Target]:
    """All that may be kept in blocks, of whatever width; the format is that of the file."""
    whole = Int8()
    keep: dict[str, Format | None] = {TABLE: whole}
    try:
        return targets(model, Plan(whole, {**keep, "head.*": whole}))
    except ConfigError:  # no weight in the head
        return targets(model, Plan(whole, keep))


def _by_rows(layout: Layout) -> bool:
    """Whether a layout only moves rows, so that it can be done on rows of blocks."""
    return isinstance(layout, Plain | Grouped | Stacked) or (isinstance(layout, Fused) and _by_rows(layout.inner))


def _plain(weight: Tensor) -> Stored:
    """`Int8` a row, by the largest magnitude: some rows at a time, each number read and written once."""
    N, D = weight.shape
    packed = torch.empty(N, D, dtype=torch.int8)
    scale = torch.empty(N, 1)
    step = max(1, CHUNK // D)
    for start in range(0, N, step):
        rows = weight[start : start + step].float()
        peak = rows.abs().amax(-1, keepdim=True) / 127  # [rows, 1]
        scale[start : start + step] = peak
        # tiny where a row is all zeros: 0 / tiny is 0
        rows = rows / peak.clamp(min=torch.finfo(torch.float32).tiny)
        packed[start : start + step] = rows.round_().clamp_(-127, 127)
    return {"packed": packed.to(weight.device), "scale": scale.to(weight.device)}
