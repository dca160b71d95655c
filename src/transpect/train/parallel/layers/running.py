"""The passes of a pipeline: torch's schedules for updates, one stage after another for evaluations.

Axes: B batch, T query, D model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

from transpect.base.errors import TranspectError
from transpect.core.model import Transformer
from transpect.core.tags import Tags
from transpect.data.batch import IGNORE, Batch
from transpect.train.parallel.gradients import AddedUp, Gradients
from transpect.train.parallel.layers.shared import SharedWeights
from transpect.train.parallel.sharding import shard
from transpect.train.parallel.world import Compute, Through
from transpect.train.precision import Precision, arithmetic


class StagePass(nn.Module):
    """What one process computes of a micro-batch: hidden states from hidden states, or the loss.

    Attributes:
        batches: of this update.
        compute: the loss of a batch, where the model ends.
        precision: of the arithmetic before that.
    """

    batches: Sequence[Batch]
    compute: Compute
    precision: Precision

    def __init__(self, model: Transformer, *, first: bool, last: bool) -> None:
        super().__init__()
        self.model, self.first, self.last = model, first, last

    def forward(self, received: Tensor, number: Tensor) -> Tensor:
        """What the stage before gave, [B, T, D] (for the first one, anything), to what the next one is given."""
        batch = self.batches[int(number)]
        if not self.first:
            token: Any = self.model.token
            token.received = received
        if self.last:
            return self.compute(batch)
        with arithmetic(self.precision, batch.ids.device):
            hidden = self.model.hidden(batch.ids, tags=batch.tags, token_types=batch.token_types)
        return hidden.float()


@final
class Staged(Gradients):
    """A stage of a pipeline.

    Args:
        model: cut (`keep_stage`).
        mesh: of all processes.
        sharded: weights are in parts over the processes that have the same stage (FSDP).
    """

    def __init__(self, model: Transformer, mesh: DeviceMesh, *, sharded: bool) -> None:
        self._pipeline = mesh["pipeline"]
        self._stage, self._stages = self._pipeline.get_local_rank(), self._pipeline.size()
        self.first, self.last = self._stage == 0, self._stage == self._stages - 1
        self._width, self._device = model.config.d_model, model.device
        self._pass = StagePass(model, first=self.first, last=self.last)
        self._submodule: Any = shard(self._pass, mesh["data"]) if sharded else self._pass
        self.shared = SharedWeights(model, mesh)
        self._over_rows = None if sharded else AddedUp(model, mesh["data"])
        self._scheduled: tuple[tuple[int, ...], Any] = ((), None)
        self._factor = 1.0

    def accumulate(self, batches: Sequence[Batch], compute: Compute, factor: float, precision: Precision) -> Tensor:
        batches = evened(batches)
        total, self._factor = torch.zeros((), device=self._device), factor

        def counted(batch: Batch) -> Tensor:
            nonlocal total
            loss = compute(batch)
            total += loss.detach()
            return loss

        self._pass.batches, self._pass.compute, self._pass.precision = batches, counted, precision
        numbers = torch.arange(len(batches))
        given: dict[str, Any] = {"target": numbers} if self.last else {}
        try:
            schedule = self._schedule(len(batches), *batches[0].ids.shape)
            schedule.step(*([numbers] if self.first else []), number=numbers, return_outputs=False, **given)
        except RuntimeError as error:
            if isinstance(error.__cause__, TranspectError):  # which torch has told of as one of its own
                raise error.__cause__ from None
            raise
        if self._over_rows is not None:
            self._over_rows.add_up()
        self.shared.add_up()
        return total

    @contextmanager
    def through(self, last: bool) -> Iterator[Through]:
        yield self._in_turn

    def _in_turn(self, compute: Compute, batch: Batch) -> Tensor:
        """One batch through the stages; a stage that has handed it on can begin with the next one."""
        self._pass.batches, self._pass.compute, self._pass.precision = [batch.to(self._device)], compute, "fp32"
        received = torch.empty(*batch.ids.shape, self._width, device=self._device)
        group = self._pipeline.get_group()
        if not self.first:
            dist.recv(received, group=group, group_src=self._stage - 1)
        out: Tensor = self._submodule(received, torch.zeros((), dtype=torch.int64))
        if not self.last:
            dist.send(out.contiguous(), group=group, group_dst=self._stage + 1)
        return out

    def _schedule(self, count: int, rows: int, length: int) -> Any:
        """Of ``count`` micro-batches of one shape; 1F1B needs as many as there are stages."""
        asked = (count, rows, length)
        if self._scheduled[0] != asked:
            between = torch.empty(rows, length, self._width, device="meta", requires_grad=True)
            number, loss = torch.empty(1, dtype=torch.int64), torch.empty((), device="meta", requires_grad=True)
            stage = PipelineStage(
                self._submodule,
                self._stage,
                self._stages,
                self._device,
                input_args=number if self.first else between,
                output_args=loss if self.last else between,
                group=self._pipeline.get_group(),
            )
            kind = Schedule1F1B if count >= self._stages else ScheduleGPipe
            made = kind(stage, count, loss_fn=lambda loss, _: loss * self._factor, scale_grads=False)
            self._scheduled = (asked, made)
        return self._scheduled[1]


def evened(batches: Sequence[Batch]) -> list[Batch]:
    """The same micro-batches with as many rows and columns each, by rows and padding that nothing is predicted of: what
    stages hand on has one shape."""
    rows, length = (max(batch.ids.shape[axis] for batch in batches) for axis in (0, 1))
    return [_padded(batch, rows, length) for batch in batches]


def _padded(batch: Batch, rows: int, length: int) -> Batch:
    more_rows, more = rows - len(batch.ids), length - batch.ids.shape[1]
    if not more_rows and not more:
        return batch
    index = torch.arange(rows, device=batch.ids.device).clamp(max=len(batch.ids) - 1)

    def longer(x: Tensor, value: int) -> Tensor:
        return functional.pad(x[index], (0, more), value=value)

    tags = batch.tags.rows(index)
    nowhere = Tags.padded(torch.zeros(rows, more, dtype=torch.bool, device=index.device))
    labels = longer(batch.labels, IGNORE) if batch.labels.ndim == 2 else batch.labels[index].clone()
    labels[len(batch.ids) :] = IGNORE
    return replace(
        batch,
        ids=longer(batch.ids, 0),
        tags=tags.join(nowhere) if more else tags,
        labels=labels,
        token_types=None if batch.token_types is None else longer(batch.token_types, 0),
    )
