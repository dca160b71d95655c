"""A vocabulary of which each process has some rows: looking tokens up, and the cross-entropy over all of them.

Axes: N labelled tokens, W width of a token vector, V vocabulary, of which v in this process.

The logits of a token lie in several processes. What its loss needs of all of them is three numbers: the largest, the
sum of exponentials, and that of the label; so that is all that is sent (Shoeybi et al. 2019, §3, "Megatron-LM"). V need
not be a multiple of the number of processes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.nn import functional

from transpect.core.context import NO_MEMORY, Memory
from transpect.core.heads import Projection, SoftCap
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.train.criteria import Criterion
from transpect.train.criteria.base import Sums
from transpect.train.criteria.tokens import TokenCrossEntropy
from transpect.train.cross_entropy import Readout, features_of, summed_over_logits
from transpect.train.loss import labelled, rows_at_once
from transpect.train.parallel.matrices.crossing import entering, leaving
from transpect.train.parallel.matrices.reading import OF_OUTPUTS, share_out, whole


@dataclass(frozen=True)
class Rows:
    """Which rows of V a process has: ⌈V/n⌉ each, but for the last ones, which may have fewer.

    Attributes:
        mesh: of the processes.
        vocab_size: V.
    """

    mesh: DeviceMesh
    vocab_size: int

    @property
    def most(self) -> int:
        """How many the first process has."""
        return -(-self.vocab_size // self.mesh.size())

    @property
    def first(self) -> int:
        """The number of the first one here."""
        return self.most * self.mesh.get_local_rank()

    @property
    def count(self) -> int:
        """v."""
        return min(self.most, self.vocab_size - self.first)

    @property
    def all_have_some(self) -> bool:
        """Whether no process is left without."""
        return self.most * (self.mesh.size() - 1) < self.vocab_size

    def places(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Of each id its row here, and whether it has one; another's is some row."""
        place = ids - self.first
        return place.clamp(0, self.count - 1), (place >= 0) & (place < self.count)


def share_vocabulary(model: Transformer, criterion: Criterion, mesh: DeviceMesh) -> Criterion:
    """Let each process keep and compute its rows of the vocabulary, where the loss is a cross-entropy over it; other
    losses read whole tables, which all processes then have. To be called before the other weights are shared out.

    Returns:
        the criterion that such a model is trained with.
    """
    rows, project = Rows(mesh, model.config.vocab_size), getattr(model.head, "project", None)
    if not (isinstance(criterion, TokenCrossEntropy) and isinstance(project, Projection) and rows.all_have_some):
        return criterion
    table: Any = model.token
    table.__class__, table.rows = LookUp, rows
    for module in (table, project):
        names = [name for name, _ in module.named_parameters(recurse=False)]
        share_out(module, mesh, {name: (Shard(0), whole) for name in names})
    return SharedCrossEntropy(criterion.smoothing, rows)


class LookUp(nn.Embedding):
    """Looks up each token where its row is."""

    rows: Rows

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, W]."""
        place, here = self.rows.places(ids)
        found = functional.embedding(place, _own(self, "weight"))
        return leaving(found.masked_fill(~here[..., None], 0.0), self.rows.mesh)


@final
@dataclass(frozen=True)
class SharedCrossEntropy(Criterion):
    """As `TokenCrossEntropy`, of a vocabulary that is shared out.

    Attributes:
        smoothing: ε of `summed_loss`, in training only.
        rows: that are here.
        scale: see `Criterion.scaled`.
    """

    smoothing: float
    rows: Rows
    scale: float = 1.0

    def scaled(self, scale: float) -> SharedCrossEntropy:
        return replace(self, scale=scale)

    def training(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        return self._of(model, batch, memory, self.smoothing)

    def evaluation(self, model: Transformer, batch: Batch, memory: Memory = NO_MEMORY) -> Sums:
        return self._of(model, batch, memory, 0.0)

    def _of(self, model: Transformer, batch: Batch, memory: Memory, smoothing: float) -> Sums:
        hidden, labels = labelled(model, batch, memory)
        features = entering(features_of(model, hidden), self.rows.mesh)
        readout, term = own_readout(model), SharedLabels(labels, smoothing, self.rows)
        at_once = rows_at_once(readout.weight.new_empty(self.rows.most, 0))  # the same in all processes
        return Sums((summed_over_logits(features, readout, term, at_once=at_once, scale=self.scale),))


def own_readout(model: Transformer) -> Readout:
    """The rows of a head's last map that are here."""
    project, cap = model.get_submodule("head.project"), getattr(model.head, "cap", None)
    holder = model.token if project._parameters.get("weight") is None else project
    bias = None if project._parameters.get("bias") is None else _own(project, "bias")
    return Readout(_own(holder, "weight"), bias, cap.cap if isinstance(cap, SoftCap) else None)


def _own(module: nn.Module, name: str) -> Tensor:
    weight: Any = module._parameters[name]
    return OF_OUTPUTS.read(weight)


@dataclass(frozen=True)
class SharedLabels:
    """Cross-entropy with labels [N], smoothed by ε, of logits [n, v]; all processes have its value, and each the slope
    of its own logits."""

    labels: Tensor
    smoothing: float
    rows: Rows

    def __call__(self, logits: Tensor, some: slice, *, slope: Tensor) -> Tensor:
        group, vocab_size = self.rows.mesh.get_group(), self.rows.vocab_size
        place, here = self.rows.places(self.labels[some])
        top = logits.amax(-1)
        dist.all_reduce(top, dist.ReduceOp.MAX, group)
        torch.sub(logits, top[:, None], out=slope)
        slope.exp_()
        of_label = logits.gather(1, place[:, None]).squeeze(1).masked_fill(~here, 0.0)
        sums = torch.stack([slope.sum(-1), of_label, logits.sum(-1)])
        dist.all_reduce(sums, group=group)
        total, of_label, of_all = sums
        slope /= total[:, None]
        slope.scatter_add_(1, place[:, None], ((self.smoothing - 1.0) * here.to(slope.dtype))[:, None])
        loss: Tensor = (top + total.log()).sum() - (1.0 - self.smoothing) * of_label.sum()
        if self.smoothing:
            loss -= self.smoothing / vocab_size * of_all.sum()
            slope -= self.smoothing / vocab_size
        return loss
