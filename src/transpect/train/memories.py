"""What a model remembers from batch to batch, where rows go on."""

from __future__ import annotations

import torch
from torch import Tensor

from transpect.base.errors import ConfigError
from transpect.cache import SegmentMemory
from transpect.core.context import NO_MEMORY, Memory
from transpect.data.batch import Batch


class Memories:
    """A memory for each slot of an update, begun anew where its lanes begin; none for rows that stand alone."""

    def __init__(self) -> None:
        self._slots: dict[int, SegmentMemory] = {}

    def of(self, batch: Batch) -> Memory:
        """The memory to read a batch with, which takes that batch up; to be asked for once a batch, in their order.

        Raises:
            ConfigError: the batch goes on from one that these memories were not read with.
        """
        at = batch.stretch
        if at is None:
            return NO_MEMORY
        if at.first:
            self._slots[at.slot] = SegmentMemory(at.memory)
        if at.slot not in self._slots:
            raise ConfigError(
                "a batch that goes on needs the memory of the batch before it",
                value=f"slot {at.slot}",
                remedy="Pass the same Memories to every update, and read the batches in order.",
            )
        return self._slots[at.slot]

    def tensors(self) -> dict[str, Tensor]:
        """All that is remembered, as ``slot/name``."""
        return {
            f"{slot}/{name}": tensor
            for slot, memory in self._slots.items()
            for name, tensor in memory.tensors().items()
        }

    def load(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Take up what `tensors` gave."""
        slots: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            slot, _, name = key.partition("/")
            slots.setdefault(int(slot), {})[name] = tensor
        self._slots = {slot: SegmentMemory.of(named, device) for slot, named in slots.items()}
