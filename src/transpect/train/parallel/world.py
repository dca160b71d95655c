"""A run as one of its processes sees it: what is its own, and what all of them do together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, final

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.train.optimizers import load_optimizer_tensors
from transpect.train.parallel.state import TENSORS, WRITTEN, Directory, Finish, Pending, Stored
from transpect.train.precision import Precision

if TYPE_CHECKING:
    from transpect.train.criteria import Criterion
    from transpect.train.recipe import Recipe

Compute = Callable[[Batch], Tensor]
Through = Callable[[Compute, Batch], Tensor]
"""Computes of a batch where the weights that it reads are at hand, and so that its gradient will be added up."""


def directly(compute: Compute, batch: Batch) -> Tensor:
    """Where all weights are at hand anyway."""
    return compute(batch)


def one_by_one(
    through: Callable[[bool], AbstractContextManager[Through]],
    batches: Sequence[Batch],
    compute: Compute,
    factor: float,
) -> Tensor:
    """As `World.accumulate`, one micro-batch after another.

    Args:
        through: what `World.through` gives, for the last one and for the others.
        batches: those that this process reads.
        compute: the loss of one.
        factor: of its gradient.
    """
    total = torch.zeros((), dtype=torch.float32, device=batches[0].ids.device) if batches else torch.zeros(())
    for number, batch in enumerate(batches, 1):
        with through(number == len(batches)) as passing:
            loss = passing(compute, batch)
            torch.autograd.backward(loss * factor)
        total += loss.detach()
    return total


class World(ABC):
    """The processes of a run.

    Attributes:
        rank: which of them this is.
        size: how many there are.
    """

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes logs, displays and checkpoints."""
        return self.rank == 0

    @abstractmethod
    def check(self, recipe: Recipe) -> None:
        """Refuse a run that can't be shared out.

        Raises:
            ConfigError: it can't.
        """

    @abstractmethod
    def spread(self, model: Transformer, criterion: Criterion) -> Criterion:
        """Share a model out, in place; to be called before an optimizer is built.

        Returns:
            the criterion that a model is trained with when it is shared out so.
        """

    @abstractmethod
    def seed(self, seed: int) -> int:
        """Of what this process draws by itself (dropout): another for other rows."""

    @abstractmethod
    def share(self, update: Sequence[Batch], counted: Callable[[Batch], bool]) -> list[Batch]:
        """What this process reads of the micro-batches of an update, as many for each process.

        Args:
            update: all of them.
            counted: whether there is something to predict; a single process leaves the others out.
        """

    @abstractmethod
    def deal(self, batches: Iterable[Batch], counted: Callable[[Batch], bool]) -> Iterator[tuple[Batch, int]]:
        """What this process reads of a pass, as many batches for each process, with 1 where it counts and 0 where it is
        only read because others still have something to read."""

    @abstractmethod
    def accumulate(self, batches: Sequence[Batch], compute: Compute, factor: float, precision: Precision) -> Tensor:
        """Add the gradient of an update to the weights' own; over processes too.

        Args:
            batches: those that this process reads, on its device.
            compute: the loss of one.
            factor: of the gradient.
            precision: of the arithmetic where ``compute`` is not called.

        Returns:
            the sum of the losses that were computed here, without a graph.
        """

    @abstractmethod
    def through(self) -> AbstractContextManager[Through]:
        """For passes without a gradient. Where another process has the end of the model, nothing is computed of what it
        gives."""

    @abstractmethod
    def totals(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The sums over what the processes read, by name, for all of them; every process must call it. Those that have
        not the end of the model know no values."""

    @abstractmethod
    def total_counts(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """The same of numbers of terms, which every process knows of what it reads."""

    @abstractmethod
    def norm(self, weights: Sequence[nn.Parameter]) -> Tensor:
        """‖g‖₂ of all gradients; of weights that have one, of which each process may hold a part."""

    @abstractmethod
    def side_by_side(self, rows: Tensor) -> Tensor:
        """The rows [b, …] of each process that shares out the same micro-batch, one after the other, [B, …]. Their
        gradients come back to those whose they are; every process must call it."""

    @abstractmethod
    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""

    @abstractmethod
    def tell(self, make: Callable[[], bytes]) -> bytes:
        """What the leading process makes, for all. What it raises, every process raises."""

    @property
    @abstractmethod
    def layout(self) -> Data:
        """How the run is shared out, as JSON data: what the random numbers of each process depend on."""

    @abstractmethod
    def write(self, tensors: dict[str, Tensor], directory: Directory, finish: Finish) -> Pending:
        """Write a state: each process its own tensors, and once a copy of those that all have alike.

        Args:
            tensors: by name.
            directory: opens the directory to write to; entered by the leading process alone.
            finish: puts the rest there; called by the leading process when all tensors are on the disk.
        """

    @abstractmethod
    def read(self, stored: Stored, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Fill weights and optimizer memory with what `write` wrote, in whatever world that was.

        Raises:
            CheckpointError: it is of another model.
        """

    @abstractmethod
    def whole(self, model: Transformer) -> dict[str, Tensor]:
        """All weights of a shared-out model by name, in the leading process; in the others nothing."""


@final
class Alone(World):
    """A run by one process."""

    rank, size = 0, 1

    def check(self, recipe: Recipe) -> None:
        recipe.parallel.check(self.size)

    def spread(self, model: Transformer, criterion: Criterion) -> Criterion:
        return criterion

    def seed(self, seed: int) -> int:
        return seed

    def share(self, update: Sequence[Batch], counted: Callable[[Batch], bool]) -> list[Batch]:
        return [batch for batch in update if counted(batch)]

    def deal(self, batches: Iterable[Batch], counted: Callable[[Batch], bool]) -> Iterator[tuple[Batch, int]]:
        return ((batch, 1) for batch in batches if counted(batch))

    def accumulate(self, batches: Sequence[Batch], compute: Compute, factor: float, precision: Precision) -> Tensor:
        return one_by_one(lambda _: self.through(), batches, compute, factor)

    def through(self) -> AbstractContextManager[Through]:
        return nullcontext(directly)

    def totals(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(values)

    def total_counts(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        return counts

    def norm(self, weights: Sequence[nn.Parameter]) -> Tensor:
        return get_total_norm([weight.grad for weight in weights if weight.grad is not None])

    def side_by_side(self, rows: Tensor) -> Tensor:
        return rows

    def any(self, flag: bool) -> bool:
        return flag

    def tell(self, make: Callable[[], bytes]) -> bytes:
        return make()

    @property
    def layout(self) -> Data:
        return {"processes": 1}

    def write(self, tensors: dict[str, Tensor], directory: Directory, finish: Finish) -> Pending:
        with directory() as folder:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / TENSORS)
            finish(folder)
        return WRITTEN

    def read(self, stored: Stored, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        try:
            model.load_state_dict(stored.part("model"))
        except RuntimeError as error:
            raise CheckpointError(f"the training state is of another model: {error}", file=stored.folder) from error
        load_optimizer_tensors(optimizer, model.named_parameters(), stored.part("optimizer"))

    def whole(self, model: Transformer) -> dict[str, Tensor]:
        return model.state_dict()


ALONE: Final = Alone()
