"""One optimizer update: micro-batches, gradient, clipping, step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_

from transpect.base.errors import DataError
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.train.criteria import CROSS_ENTROPY, Criterion
from transpect.train.criteria.base import LOSS, Tally, mean_loss, total_counts
from transpect.train.loss_scale import NO_SCALE, LossScale, NoScale
from transpect.train.memories import Memories
from transpect.train.optimizers import set_rate
from transpect.train.parallel.world import ALONE, World
from transpect.train.pieces import beside, can_be_cut, pieces, tokens_of
from transpect.train.precision import Precision, arithmetic
from transpect.train.readers import Readers

DRAWS = 100
"""How many updates in a row may come without a single label before that is an error."""


@dataclass(frozen=True)
class Update:
    """What one update was.

    Attributes:
        loss: of its criterion: for most the mean over its labels in nats, with label smoothing where that is on. On
            the device.
        grad_norm: the global norm of the gradient before clipping. On the device.
        n_labels: how many tokens were predicted.
        n_tokens: how many tokens were read.
        measures: what else the criterion says. On the device.
        made: whether weights were updated; see `LossScale`.
    """

    loss: Tensor
    grad_norm: Tensor
    n_labels: int
    n_tokens: int
    measures: Mapping[str, Tensor] = field(default_factory=dict)
    made: bool = True


def draw(batches: Iterator[Batch], count: int) -> list[Batch]:
    """The next ``count`` micro-batches; where none of them has a label, the ``count`` after them.

    Raises:
        DataError: a hundred draws without a label.
    """
    for _ in range(DRAWS):
        drawn = [next(batches) for _ in range(count)]
        if any(batch.n_labels for batch in drawn):
            return drawn
    raise DataError(
        "an update needs at least one label",
        value=f"none in {DRAWS * count} batches",
        remedy="Check the objective: with a low masking rate and short texts nothing may be masked.",
    )


def update(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Batch],
    *,
    rate: float,
    clip: float | None = None,
    criterion: Criterion = CROSS_ENTROPY,
    precision: Precision = "fp32",
    memories: Memories | None = None,
    scale: LossScale | NoScale = NO_SCALE,
    world: World = ALONE,
    readers: Readers | None = None,
) -> Update:
    """Make one update with the gradient of the mean loss over all that is counted in ``batches``.

    A micro-batch without labels adds nothing, and the update is the one that a single large batch would have made.
    ``model`` must be in training mode; its gradients are None before and after.

    Args:
        batches: micro-batches, with at least one label among them.
        rate: the learning rate of this update.
        clip: the global gradient norm to clip to; None clips nothing.
        criterion: whose loss is made small.
        precision: of the forward and backward arithmetic.
        memories: of the updates before, for batches whose rows go on from theirs; None is none yet.
        scale: of the loss, for fp16; where the gradient is not finite no update is made.
        world: the processes that share the batches out; each is given all of them.
        readers: of ``model``, for pieces that may be read side by side; None is one.

    Raises:
        ConfigError: a batch goes on, and ``memories`` do not hold what it goes on from.
        TrainingError: float16's gradients are not finite at any scale.
    """
    device = model.device
    memories = Memories() if memories is None else memories
    totals, tally = total_counts(criterion.counts(batch) for batch in batches), Tally()
    scaled = criterion.scaled(scale.over(totals[0]))

    def mean(reader: Transformer, batch: Batch) -> Tensor:
        with arithmetic(precision, device):
            sums = scaled.training(reader, batch, memories.of(batch))
        tally.add(sums)
        return mean_loss(sums.losses, totals)

    shared = [*world.share(batches, lambda batch: any(criterion.counts(batch)))]
    cut = can_be_cut(shared, criterion, device, world)
    count = readers.count if cut and readers is not None else 1
    if not all(beside(tokens_of(batch), count) for batch in shared):
        count = 1
    own = pieces(shared, criterion, count) if cut else shared
    moved = [batch if batch.ids.device == device else batch.to(device) for batch in own]
    if readers is not None and count > 1:
        total = readers.accumulate(moved, mean, scale.factor)
    else:
        total = world.accumulate(moved, partial(mean, model), scale.factor, precision)
    scale.undo([weight.grad for weight in model.parameters() if weight.grad is not None])
    norm = clip_gradient(model, clip, world)
    made = scale.allows(norm)
    if made:
        set_rate(optimizer, rate)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    sums = world.totals({LOSS: total, **tally.measures})
    return Update(
        loss=sums.pop(LOSS),
        grad_norm=norm,
        n_labels=sum(batch.n_labels for batch in batches),
        n_tokens=sum(batch.n_tokens for batch in batches),
        made=made,
        measures=criterion.summary(sums, totals),
    )


def clip_gradient(model: nn.Module, limit: float | None, world: World = ALONE) -> Tensor:
    """Scale all gradients by min(1, limit/‖g‖₂), and return the global norm ‖g‖₂ from before.

    Source: Pascanu et al. 2013, algorithm 1.
    """
    weights = [weight for weight in model.parameters() if weight.grad is not None]
    norm = world.norm(weights)
    # where the norm can be read without waiting for the device, a factor of 1 costs no pass over the gradients
    if limit is not None and (norm.device.type != "cpu" or not float(norm) <= limit):
        clip_grads_with_norm_(weights, limit, norm)
    return norm
