"""A whole plan: of a recipe on this machine, or on so many devices of a kind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from transpect.base.allocator import keep_freed_memory
from transpect.base.devices import set_threads
from transpect.base.errors import ConfigError
from transpect.interop.blank import blank
from transpect.train.planning.base import base_of
from transpect.train.planning.choice import ROOM, Chosen, choose
from transpect.train.planning.hardware import Hardware, ThisMachine, this_machine
from transpect.train.planning.parts import Part, parts_of
from transpect.train.planning.peak import CUDA_CONTEXT, HEAP, memory_of, state_bytes
from transpect.train.planning.reading import Reading, work_of
from transpect.train.planning.rehearsal import holes
from transpect.train.planning.scaling import Layout
from transpect.train.planning.seconds import time_of, training_flops
from transpect.train.readers import how_many
from transpect.train.recipe import Recipe


@dataclass(frozen=True)
class Planned:
    """What a run will need.

    Attributes:
        reading: the recipe, with what its data are like.
        parts: of the model, for a micro-batch as the recipe has it.
        hardware: on what.
        devices: how many.
        chosen: ways to run it, the quickest first; on this machine the first is the recipe's own, if it fits.
        flops: of an update, forward and backward (model FLOPs).
        fits: whether the recipe as it stands fits into a device.
        hours: that it may take, if that was said.
    """

    reading: Reading
    parts: list[Part]
    hardware: Hardware
    devices: int
    chosen: list[Chosen]
    flops: int
    fits: bool
    hours: float | None

    @property
    def parameters(self) -> int:
        """Trainable numbers."""
        return sum(part.parameters for part in self.parts)

    @property
    def best(self) -> Chosen:
        """The way to go."""
        return self.chosen[0]

    @property
    def seconds(self) -> float:
        """All updates of the run."""
        return self.best.time.update * self.reading.recipe.train.max_steps

    @property
    def cost(self) -> float:
        """US dollars."""
        return self.seconds / 3600 * self.devices * self.hardware.price

    @property
    def tokens_per_s(self) -> float:
        """Real tokens."""
        spec = self.reading.recipe.train
        return self.reading.mean.n_tokens * spec.accumulate / self.best.time.update

    @property
    def utilisation(self) -> float:
        """Model FLOPs as a share of what the devices could do."""
        peak = self.hardware.peak[self.reading.mean.precision] * self.devices
        return self.flops / self.best.time.update / peak

    @property
    def steps_in_time(self) -> int | None:
        """Updates that the hours allow."""
        return None if self.hours is None else int(self.hours * 3600 / self.best.time.update)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON data."""
        ways = [
            {
                "layout": asdict(one.layout),
                "batch_size": one.work.rows,
                "accumulate": one.accumulate,
                "checkpointed": one.work.checkpointed,
                "peak_bytes": one.memory.peak,
                "memory": asdict(one.memory),
                "seconds": one.time.update,
                "time": asdict(one.time),
                "sent_bytes": one.sent,
            }
            for one in self.chosen
        ]
        return {
            "parameters": self.parameters,
            "flops": self.flops,
            "hardware": self.hardware.name,
            "devices": self.devices,
            "fits": self.fits,
            "steps": self.reading.recipe.train.max_steps,
            "seconds": self.seconds,
            "dollars": self.cost,
            "tokens_per_s": self.tokens_per_s,
            "utilisation": self.utilisation,
            "steps_in_time": self.steps_in_time,
            "parts": {part.name: part.parameters for part in self.parts},
            "ways": ways,
        }


def plan(
    recipe: Recipe,
    *,
    hardware: Hardware | None = None,
    devices: int = 1,
    memory: int | None = None,
    hours: float | None = None,
    price: float | None = None,
) -> Planned:
    """Plan a recipe.

    Args:
        recipe: what to train; its data are read.
        hardware: a kind of device; None is this machine, which is tried at the sizes of the recipe.
        devices: how many.
        memory: bytes of a device, over what the hardware has.
        hours: that the run may take.
        price: dollars an hour and device, over the hardware's.

    Raises:
        ConfigError: a recipe that can't be built, or that fits in no way.
        DataError: data that can't be read.
    """
    for name, value in (("hours", hours), ("price", price)):
        if value is not None and value < 0:
            raise ConfigError(f"{name} must not be negative", value=value)
    reading = work_of(recipe)
    full, config, mean = reading.recipe, reading.config, reading.mean
    spec = full.train
    optimizer = state_bytes(spec.optimizer, blank(config))
    here = hardware is None
    if hardware is None:
        set_threads(spec.threads)
        base = base_of(full)
        keep_freed_memory()
        hardware = this_machine()
    else:
        base = CUDA_CONTEXT if hardware.gpu else 0
    if memory is not None:
        hardware = replace(hardware, memory=memory)
    if price is not None:
        hardware = replace(hardware, price=price)
    readers = how_many(blank(config), compiled=spec.compile) if here else 1
    own = replace(reading.fullest, again=not hardware.gpu, readers=readers)
    piece, times = own.in_pieces()
    heap = holes(config, own, spec.optimizer, torch.get_num_threads(), hardware.memory - base) if here else HEAP
    held = memory_of(
        parts_of(config, piece),
        piece,
        config.vocab_size,
        optimizer,
        accumulate=spec.accumulate * times,
        base=base,
        evaluated=reading.evaluated,
        heap=heap,
    )
    rows = spec.batch_size * spec.accumulate
    fits = held.peak <= hardware.memory * ROOM
    if here and fits:
        usual, times = replace(mean, readers=readers).in_pieces()
        time = time_of(parts_of(config, usual), usual, ThisMachine(), spec.accumulate * times)
        chosen = [Chosen(Layout(), own, spec.accumulate, held, time, {})]
    else:
        chosen = choose(config, own, rows, optimizer, hardware, devices, base, heap)
    parts = parts_of(config, replace(mean, again=own.again))
    return Planned(reading, parts, hardware, devices, chosen, training_flops(parts) * spec.accumulate, fits, hours)
