"""In which order rows are read: each alone, or in lanes whose rows go on from batch to batch.

Lanes are for models that remember (`Objective.remembers`). The places of an epoch, documents end to end in its own
order, are cut into as many lanes as an update has rows, ``batch_size`` × ``slots``, of equal length to a place; each
batch is the next segment of ``batch_size`` lanes::

    lanes 0 1 2 3, batch_size 2, slots 2:     batch   0     1     2     3     4
                                              lanes   0 1   2 3   0 1   2 3   0 1
                                              segment 0     0     1     1     2

So with 2 slots of 2 rows an update reads what it would read with 1 slot of 4. Each place is read once an epoch. An
epoch begins without memory: its documents come in another order. Its last segment may be short.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, final

from transpect.base.errors import ConfigError
from transpect.core.tags import Tags
from transpect.data.batch import Batch, Stretch
from transpect.data.objectives.base import Remembers
from transpect.data.packing import Plan, in_lanes


class Order(ABC):
    """How the rows of a plan follow each other."""

    @abstractmethod
    def arranged(self, plan: Plan) -> Plan:
        """The plan's places in rows as they are read."""

    @abstractmethod
    def placed(self, batch: Batch, row: int, *, training: bool) -> Batch:
        """The batch that begins with this row, told where it stands."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What a run must go on with, besides data and objective."""


@final
class EachAlone(Order):
    """Rows know nothing of each other."""

    def arranged(self, plan: Plan) -> Plan:
        return plan

    def placed(self, batch: Batch, row: int, *, training: bool) -> Batch:
        return batch

    @property
    def options(self) -> dict[str, Any]:
        return {}


@final
@dataclass(frozen=True)
class Lanes(Order):
    """Row b of a batch goes on where row b of the last batch of its slot ended.

    Attributes:
        remembers: how much.
        batch_size: lanes of a slot.
        slots: micro-batches of an update.
        seq_len: of a segment.
        numbered: positions go on along a lane; False where documents number their own.
    """

    remembers: Remembers
    batch_size: int
    slots: int
    seq_len: int
    numbered: bool

    @property
    def count(self) -> int:
        """How many lanes there are."""
        return self.batch_size * self.slots

    def arranged(self, plan: Plan) -> Plan:
        return in_lanes(plan, self.count, self.seq_len)

    def placed(self, batch: Batch, row: int, *, training: bool) -> Batch:
        segment, lane = divmod(row, self.count)
        memory = self.remembers.training if training else self.remembers.evaluation
        tags = _shifted(batch.tags, segment * self.seq_len) if self.numbered else batch.tags
        return replace(batch, tags=tags, stretch=Stretch(lane // self.batch_size, segment == 0, memory))

    @property
    def options(self) -> dict[str, Any]:
        return {"batch_size": self.batch_size, "accumulate": self.slots}


def check_options(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with other lanes than those whose memories were kept.

    Raises:
        ConfigError: another number of lanes, or another grouping.
    """
    for name, value in now.items():
        if before.get(name) != value:
            raise ConfigError(
                f"a run whose rows go on from batch to batch must keep {name}={before.get(name)}",
                value=value,
                remedy="Set it back, or start a new run in another directory.",
            )


def _shifted(tags: Tags, by: int) -> Tags:
    if tags.start is not None:
        return Tags.dense(*tags.shape, start=tags.start + by, device=tags.position.device)
    real = tags.position >= 0
    return Tags.of((tags.position + by).where(real, -1), segment=tags.segment)
