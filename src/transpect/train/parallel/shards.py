"""Tensors that processes share out, in safetensors files: each process writes and reads its own parts.

torch's distributed checkpoint (DCP) plans who writes what and finds on loading what each process needs, for any number
of them. Its usual storage keeps that plan as a pickle; its storage for Hugging Face writes each part's place into the
header of the safetensors file that holds it, so nothing but safetensors and JSON is written or read here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from transpect.base.errors import CheckpointError, TranspectError
from transpect.train.optimizers import load_optimizer_tensors
from transpect.train.parallel.heartbeat import is_loss
from transpect.train.parallel.state import Directory, Finish


class _Writer(HuggingFaceStorageWriter):
    """Calls ``finish`` in the leading process when every process has its parts on the disk."""

    def __init__(self, folder: Path, finish: Callable[[], None]) -> None:
        super().__init__(str(folder), save_distributed=True)
        self._finish = finish

    def finish(self, metadata: Metadata, results: Any) -> None:
        self._finish()


class Shards:
    """A state that all processes write behind the training's back.

    Args:
        tensors: of this process: whole ones that all have alike, shared-out ones, and some of its own by name.
        directory: opens the directory to write to; entered by the leading process alone.
        finish: puts the rest there; called by the leading process.
        group: of all processes, used for nothing else at the time.
        tell: as `World.tell`.
    """

    def __init__(
        self,
        tensors: dict[str, Tensor],
        directory: Directory,
        finish: Finish,
        group: dist.ProcessGroup,
        tell: Callable[[Callable[[], bytes]], bytes],
    ) -> None:
        self._open = ExitStack()
        folder = Path(tell(lambda: str(self._open.enter_context(directory())).encode()).decode())

        def complete() -> None:
            finish(folder)
            self._open.close()

        with self._open.pop_all() as opened:
            self._saved: Any = async_save(dict(tensors), storage_writer=_Writer(folder, complete), process_group=group)
            self._open = opened.pop_all()

    def wait(self) -> None:
        """Return when it is on the disk.

        Raises:
            CheckpointError: it could not be written.
        """
        try:
            self._saved.result()
        except Exception as error:
            with self._open:  # whose directory is taken away again
                if isinstance(error, TranspectError) or is_loss(error):
                    raise
                raise CheckpointError(f"the training state can't be written: {error}", remedy="Make room.") from error


def stored(folder: Path) -> dict[str, TensorStorageMetadata]:
    """The tensors that stand in a directory of safetensors files, whole, by name."""
    found = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {name: entry for name, entry in found.items() if isinstance(entry, TensorStorageMetadata)}


def read_into(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Fill tensors, whole or shared out, with what stands in a directory under their names."""
    load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)


def read_whole(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a directory, whole."""
    tensors = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in stored(folder).items()}
    read_into(folder, tensors)
    return tensors


def like_weight(entry: TensorStorageMetadata, weight: Tensor) -> Tensor:
    """An empty tensor for what an optimizer remembers of a weight, shared out as that is."""
    if entry.size == weight.size():
        return torch.zeros_like(weight, dtype=entry.properties.dtype, requires_grad=False)
    empty = torch.zeros(entry.size, dtype=entry.properties.dtype)
    if not entry.size:
        return empty
    if not isinstance(weight, DTensor):
        return empty.to(weight.device)
    return distribute_tensor(empty.to(weight.device), weight.device_mesh, [Replicate()] * weight.device_mesh.ndim)


def read_state(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Fill weights and optimizer memory, each process its own part.

    Raises:
        CheckpointError: it is of another model.
    """
    weights = dict(model.named_parameters())
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    memory: dict[str, Tensor] = {}
    for full, entry in stored(folder).items():
        kind, _, rest = full.partition("/")
        name = rest.partition("/")[2]
        if kind == "optimizer" and name in weights:
            memory[rest] = like_weight(entry, weights[name])
    try:
        read_into(folder, tensors | {f"optimizer/{name}": tensor for name, tensor in memory.items()})
    except (RuntimeError, ValueError, CheckpointException) as error:
        raise CheckpointError(f"the training state is of another model: {error}", file=folder) from error
    load_optimizer_tensors(optimizer, weights.items(), memory)
