"""Many devices, on paper: what each holds, and what they must tell each other.

- Data parallel, weights whole (DDP): an all-reduce of the gradient an update, of which each device sends 2·(n−1)/n
  times the bytes (Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce"), hidden behind the backward pass as far as
  that is long.
- Data parallel, weights in shards (FSDP): weights gathered forward and backward, gradients scattered, 3·(n−1)/n times
  their bytes a micro-batch (Rajbhandari et al. 2020, "ZeRO", §7.2), hidden likewise.
- Tensor parallel: four all-reduces of [B·T, D] a layer and micro-batch, two forward and two backward (Shoeybi et al.
  2019, "Megatron-LM", §3), which nothing hides.
- Pipeline: [B·T, D] from stage to stage forward and backward, and a bubble of (p−1)/m of the computing, where m
  micro-batches go through p stages (Narayanan et al. 2021, §2.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from transpect.core.config import ModelConfig
from transpect.train.parallel.fitting import misfits
from transpect.train.planning.hardware import Hardware
from transpect.train.planning.parts import WIDE, Part, Work
from transpect.train.planning.peak import HEAP, Memory, memory_of
from transpect.train.planning.seconds import Time, time_of


@dataclass(frozen=True)
class Layout:
    """How devices share a run.

    Attributes:
        data: replicas, or shards, that read different rows.
        tensor: devices that share each matrix.
        pipeline: stages of layers.
        sharded: weights, gradients and optimizer state are in shards over ``data`` (FSDP).
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    sharded: bool = False

    @property
    def devices(self) -> int:
        """How many."""
        return self.data * self.tensor * self.pipeline


def layouts(config: ModelConfig, devices: int, per_node: int, rows: int) -> Iterator[Layout]:
    """All that fit a model: tensor parallel within a node and by whole heads and inner features, stages of
    equally many layers, at least one row for each replica."""
    last = config.last
    for tensor in range(1, min(devices, per_node) + 1):
        if devices % tensor or any(misfits(config, tensor)):
            continue
        for pipeline in range(1, devices // tensor + 1):
            data, rest = divmod(devices, tensor * pipeline)
            if rest or last.n_layers % pipeline or (pipeline > 1 and len(config.towers) > 1) or rows % data:
                continue
            yield Layout(data, tensor, pipeline)
            if data > 1:
                yield Layout(data, tensor, pipeline, sharded=True)


def talk(parts: Sequence[Part], work: Work, layout: Layout, accumulate: int) -> dict[str, float]:
    """Bytes that a device sends in an update, by why."""
    weights = sum(part.parameters for part in parts) * WIDE / (layout.tensor * layout.pipeline)
    widest = next((product for part in parts if part.layer != part.name for product in part.products), None)
    crossing = 0 if widest is None else widest.m * widest.k * work.low
    layers = len({part.layer for part in parts if part.layer != part.name})
    found: dict[str, float] = {}
    if layout.data > 1:
        ring = (layout.data - 1) / layout.data
        found["data"] = ring * weights * (3 * accumulate if layout.sharded else 2)
    if layout.tensor > 1:
        ring = 2 * (layout.tensor - 1) / layout.tensor
        found["tensor"] = 4 * ring * crossing * layers / layout.pipeline * accumulate
    if layout.pipeline > 1:
        found["pipeline"] = 2.0 * crossing * accumulate
    return found


def shared_memory(
    parts: Sequence[Part],
    work: Work,
    vocab_size: int,
    optimizer: int,
    layout: Layout,
    accumulate: int,
    base: int,
    heap: float = HEAP,
) -> Memory:
    """What the fullest device holds: of a pipeline the first stage, through which as many micro-batches are on their
    way as there are stages."""
    whole = memory_of(parts, work, vocab_size, optimizer, accumulate=accumulate, base=base, heap=heap)
    split = layout.tensor * layout.pipeline
    shards = split * (layout.data if layout.sharded else 1)
    underway = min(layout.pipeline, accumulate)
    # a gathered layer stands beside the shards
    gathered = max(part.parameters for part in parts) * WIDE * 2 // split if layout.sharded else 0
    return replace(
        whole,
        weights=whole.weights // shards,
        gradients=whole.gradients // shards,
        optimizer=whole.optimizer // shards,
        activations={name: own * underway // split for name, own in whole.activations.items()},
        loss=whole.loss // layout.tensor,
        passing=whole.passing // layout.tensor + gathered,
    )


def shared_time(parts: Sequence[Part], work: Work, hardware: Hardware, layout: Layout, accumulate: int) -> Time:
    """An update of all devices together."""
    split = layout.tensor * layout.pipeline
    share = 1.0 / (split * (layout.data if layout.sharded else 1))
    alone = time_of(parts, work, hardware, accumulate, share)
    products, attention, pointwise = (t / split for t in (alone.products, alone.attention, alone.pointwise))
    starting = alone.starting / layout.pipeline
    computing = products + attention + pointwise + starting
    sent = talk(parts, work, layout, accumulate)
    across = layout.devices > hardware.per_node
    outer = (hardware.network if across else hardware.link) or hardware.link or 1e9
    hidden = computing * 2 / 3
    waiting = max(0.0, sent.get("data", 0.0) / outer - hidden) + sent.get("pipeline", 0.0) / outer
    waiting += sent.get("tensor", 0.0) / (hardware.link or 1e9)
    bubble = computing * (layout.pipeline - 1) / accumulate
    return Time(products, attention, pointwise, starting, alone.optimizer, waiting, bubble)
