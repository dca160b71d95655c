"""Weights put into few bits while they are loaded, tensor by tensor, so that no model in full ever stands in memory.

Axes: N out, D in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core import Transformer
from transpect.interop.layouts import Layout, by_rows
from transpect.interop.tensors import Link
from transpect.interop.weights import Weights
from transpect.quant import Format, Int8, Plan, QuantEmbedding, plan_named
from transpect.quant.formats import Stored
from transpect.quant.rounding import rounded
from transpect.quant.swap import TABLE, Target, swap, targets

__all__ = ["FULL", "KEEP", "Quantising", "quantising"]

KEEP, FULL = "keep", "full"
"""In place of a format's name: what leaves weights in the formats of the checkpoint, and what restores them all."""

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
    _holders: dict[str, Target] = field(init=False)
    _taken: dict[nn.Module, bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._holders = self._by_name(_every(self.model))
        self._targets = {} if self.plan is None else self._by_name(targets(self.model, self.plan))

    def keeps(self, item: Link, source: str, weights: Weights, shapes: Sequence[torch.Size]) -> bool:
        """Whether the tensor stays in the blocks of its file; then it was put where it belongs."""
        if not (self.plan is None or weights.compressed) or not by_rows(item.layout):
            return False
        if any(name not in self._holders for name in item.ours):
            return False
        kept = weights.stored(source)
        if kept is None:
            return False
        format, stored = kept
        parts = {key: _parted(item.layout, rows, shapes) for key, rows in stored.items()}
        for index, name in enumerate(item.ours):
            self._put(self._holders[name], format, {key: rows[index] for key, rows in parts.items()})
        return True

    def takes(self, name: str, weight: Tensor) -> bool:
        """Whether a weight of ours takes a format; then it was rounded and put where it belongs."""
        target = self._targets.get(name)
        if target is None:
            return False
        format = target.format
        self._put(target, format, _plain(weight) if format == Int8() else rounded(weight, format))
        return True

    def _by_name(self, found: Sequence[Target]) -> dict[str, Target]:
        modules = {target.module: target for target in found}
        return {
            f"{name}.weight": modules[module]
            for name, module in self.model.named_modules(remove_duplicate=False)
            if module in modules
        }

    def _put(self, target: Target, format: Format, stored: Stored) -> None:
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


def quantising(model: Transformer, how: str | Format | Plan | None, weights: Weights) -> Quantising | None:
    """How a blank model's weights are stored once they are read.

    Args:
        how: a format for linear layers; the name of one or of a mixture, see `plan_named`; a
            plan; `KEEP`; `FULL`; or None, which is `KEEP` for a compressed checkpoint and `FULL` for others.
        weights: of the checkpoint.

    Raises:
        ConfigError: no such format, or one that can't store this model's weights.
    """
    if how == FULL or (how is None and not weights.compressed):
        return None
    if how is None:
        return Quantising(model, None)
    if isinstance(how, str):
        plan = None if how == KEEP else plan_named(how, model)
    else:
        plan = how if isinstance(how, Plan) else Plan(how)
    return Quantising(model, plan)


def _every(model: Transformer) -> list[Target]:
    """All that may be kept in blocks, of whatever width; the format is that of the file."""
    whole = Int8()
    keep: dict[str, Format | None] = {TABLE: whole}
    try:
        return targets(model, Plan(whole, {**keep, "head.*": whole}))
    except ConfigError:  # no weight in the head
        return targets(model, Plan(whole, keep))


def _parted(layout: Layout, rows: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """The rows of our weights of these shapes, out of those of one tensor; all of them may be empty."""
    if not rows.numel():
        return [rows] * len(shapes)
    parts = layout.unpack([rows], [torch.Size((shape[0], rows.shape[-1])) for shape in shapes])
    return [part.reshape(-1, part.shape[-1]) for part in parts]


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
