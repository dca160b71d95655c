"""The processes that `torchrun` started, as one world: a mesh of them, and what they do together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transpect.base.codec import Data
from transpect.base.errors import ConfigError, TranspectError
from transpect.core.model import Transformer
from transpect.data.batch import Batch
from transpect.train.criteria import Criterion
from transpect.train.parallel.gathering import sharers, side_by_side
from transpect.train.parallel.gradients import AddedUp, Gradients, Replicated, Sharded, gathered, global_norm
from transpect.train.parallel.grid import Grid
from transpect.train.parallel.layers import Staged, check_layers, first_stage_hears, keep_stage, last_stage_says
from transpect.train.parallel.matrices import check_matrices, share_matrices, share_vocabulary
from transpect.train.parallel.shards import Shards, read_state
from transpect.train.parallel.shares import check_shares, deal, share
from transpect.train.parallel.spec import ParallelSpec
from transpect.train.parallel.state import Directory, Finish, Pending, Stored
from transpect.train.parallel.world import Compute, Through, World
from transpect.train.precision import Precision

if TYPE_CHECKING:
    from transpect.train.recipe import Recipe


@final
class Together(World):
    """One of several processes.

    Args:
        spec: what they share out.
        device: of this process.
    """

    def __init__(self, spec: ParallelSpec, device: torch.device) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.spec, self.grid = spec, Grid(spec, device)
        self._writers = dist.new_group(backend="gloo")  # for what is written while training goes on
        self._gradients: Gradients
        self._sharers: dist.ProcessGroup | None = None
        self._copies: set[nn.Parameter] = set()  # of weights that an earlier stage has as well

    def check(self, recipe: Recipe) -> None:
        if recipe.objective.remembers is not None:
            raise ConfigError(
                "rows that go on from batch to batch are read by one process",
                value=f"objective {recipe.objective.kind}, {self.size} processes",
                remedy="Train it without torchrun, or choose an objective whose rows stand alone.",
            )
        if recipe.objective.needs.one_process:
            raise ConfigError(
                f"the objective {recipe.objective.kind} trains a second model along, which one process does",
                value=f"{self.size} processes",
                remedy="Train it without torchrun.",
            )
        readers = self.grid.data.size()
        shares_weights = self.spec.data == "fsdp" or self.spec.tensor * self.spec.pipeline > 1
        whole = {
            "logging.samples": recipe.logging.samples,
            "logging.measures": recipe.logging.measures,
            "train.ema": recipe.train.ema,
        }
        asked = [name for name, value in whole.items() if value]
        if shares_weights and asked:
            raise ConfigError(
                f"{asked[0]} looks at whole weights, and processes that share weights out have none",
                value=self.spec.shown,
                remedy="Leave it out, or train with parallel.data: ddp alone.",
            )
        if self.spec.tensor > 1:
            check_matrices(recipe, self.spec.tensor)
        if self.spec.pipeline > 1:
            check_layers(recipe, self.spec.pipeline)
        check_shares(recipe.train.accumulate, recipe.train.batch_size, readers)
        self._sharers = sharers(recipe.train.accumulate, self.grid.readers)

    def spread(self, model: Transformer, criterion: Criterion) -> Criterion:
        if self.spec.tensor > 1:
            criterion = share_vocabulary(model, criterion, self.grid.tensor)
            share_matrices(model, self.grid.tensor)
        if self.spec.pipeline > 1:
            keep_stage(model, self.grid.pipeline.get_local_rank(), self.spec.pipeline)
            staged = Staged(model, self.grid.mesh, sharded=self.spec.data == "fsdp")
            self._gradients, self._copies = staged, staged.shared.copies
            return criterion
        whole = AddedUp if self.spec.tensor > 1 else Replicated
        self._gradients = (Sharded if self.spec.data == "fsdp" else whole)(model, self.grid.data)
        return criterion

    def seed(self, seed: int) -> int:
        return (seed + 0x9E3779B97F4A7C15 * self.grid.stream) % 2**63

    def share(self, update: Sequence[Batch], counted: Callable[[Batch], bool]) -> list[Batch]:
        return share(update, self.grid.data.get_local_rank(), self.grid.data.size())

    def deal(self, batches: Iterable[Batch], counted: Callable[[Batch], bool]) -> Iterator[tuple[Batch, int]]:
        return deal(batches, self.grid.data.get_local_rank(), self.grid.data.size())

    def accumulate(self, batches: Sequence[Batch], compute: Compute, factor: float, precision: Precision) -> Tensor:
        return self._gradients.accumulate(batches, compute, factor, precision)

    def through(self) -> AbstractContextManager[Through]:
        return self._gradients.through(last=True)

    def totals(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        known = {name: self._total(value) for name, value in values.items()}
        return known if self.spec.pipeline == 1 else last_stage_says(known, self.grid.pipeline)

    def total_counts(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self._total(torch.tensor(counts)).tolist())

    def norm(self, weights: Sequence[nn.Parameter]) -> Tensor:
        once = [weight.grad for weight in weights if weight not in self._copies and weight.grad is not None]
        return global_norm(once, self.size // self.spec.pipeline)

    def side_by_side(self, rows: Tensor) -> Tensor:
        return rows if self._sharers is None else side_by_side(rows, self._sharers)

    def any(self, flag: bool) -> bool:
        flags = torch.tensor(int(flag))
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def tell(self, make: Callable[[], bytes]) -> bytes:
        said: list[Any] = [None]
        if self.leads:
            try:
                said = [make()]
            except TranspectError as error:
                said = [error]
        dist.broadcast_object_list(said, src=0)
        if isinstance(said[0], TranspectError):
            raise said[0]
        assert isinstance(said[0], bytes)
        return said[0]

    @property
    def layout(self) -> Data:
        return {"processes": self.size, "data": self.spec.data, **self.grid.layout}

    def write(self, tensors: dict[str, Tensor], directory: Directory, finish: Finish) -> Pending:
        return Shards(tensors, directory, finish, self._writers, self.tell)

    def read(self, stored: Stored, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        read_state(stored.folder, model, optimizer)

    def whole(self, model: Transformer) -> dict[str, Tensor]:
        weights = {name: gathered(value) for name, value in model.state_dict().items()}
        if self.spec.pipeline > 1:
            weights = first_stage_hears(weights, self.grid.pipeline)
        return weights if self.leads else {}

    def _total(self, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total, group=self.grid.data.get_group())
        return total
