"""Micro-batch, accumulation, checkpointing and layout: the quickest that fits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from transpect.base.errors import ConfigError
from transpect.core.config import ModelConfig
from transpect.train.planning.hardware import Hardware
from transpect.train.planning.parts import Part, Work, parts_of
from transpect.train.planning.peak import HEAP, Memory
from transpect.train.planning.scaling import Layout, layouts, shared_memory, shared_time, talk
from transpect.train.planning.seconds import Time

ROOM = 0.94
"""Share of a device's memory that a plan fills: the rest is what allocators lose between blocks."""


@dataclass(frozen=True)
class Chosen:
    """A way to run an update of the same rows.

    Attributes:
        layout: over the devices.
        work: of one micro-batch on one device.
        accumulate: micro-batches of a device.
        memory: of the fullest device.
        time: of an update.
        sent: bytes that a device sends in an update, by why.
    """

    layout: Layout
    work: Work
    accumulate: int
    memory: Memory
    time: Time
    sent: dict[str, float]


def choose(
    config: ModelConfig,
    work: Work,
    rows: int,
    optimizer: int,
    hardware: Hardware,
    devices: int = 1,
    base: int = 0,
    heap: float = HEAP,
) -> list[Chosen]:
    """The ways that fit, the quickest first; each layout once.

    Args:
        config: the model.
        work: of a micro-batch as the recipe has it.
        rows: of an update, over all micro-batches; the same in every way, for it decides what is learnt.
        optimizer: bytes of its state.
        hardware: a kind of device.
        devices: how many.
        base: see `Memory`.
        heap: see `memory_of`.

    Raises:
        ConfigError: nothing fits.
    """
    found: dict[Layout, Chosen] = {}
    least: int | None = None
    work = replace(work, again=not hardware.gpu)
    known: dict[Work, list[Part]] = {}
    for layout in layouts(config, devices, hardware.per_node, rows):
        each = rows // layout.data
        for own in (size for size in range(each, 0, -1) if each % size == 0):
            for checkpointed in (False, True):
                tried = replace(work.scaled(own), checkpointed=checkpointed)
                piece, times = tried.in_pieces()
                parts = known.setdefault(piece, []) or known[piece]
                if not parts:
                    parts += parts_of(config, piece)
                accumulate, passes = each // own, each // own * times
                memory = shared_memory(parts, piece, config.vocab_size, optimizer, layout, passes, base, heap)
                least = memory.peak if least is None else min(least, memory.peak)
                if memory.peak > hardware.memory * ROOM:
                    continue
                time = shared_time(parts, piece, hardware, layout, passes)
                if layout not in found or time.update < found[layout].time.update:
                    sent = talk(parts, piece, layout, passes)
                    found[layout] = Chosen(layout, tried, accumulate, memory, time, sent)
    if least is None:
        raise ConfigError(
            f"the {rows} rows of an update must be a multiple of the groups that {devices} devices form, and no way to "
            "group them is",
            value=f"{config.kind} of {config.last.n_layers} layers",
            remedy="Change train.batch_size or train.accumulate, or take another number of devices.",
        )
    if not found:
        raise ConfigError(
            f"a run must fit into {devices} × {hardware.memory / 1e9:.1f} GB",
            value=f"{least / 1e9:.1f} GB on a device at least",
            remedy="Take more or larger devices, a smaller model, or shorter rows.",
        )
    return sorted(found.values(), key=lambda one: one.time.update)
