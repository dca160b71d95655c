"""The training state of a run: everything that its future depends on, in one directory that is replaced as a whole.

``state/state.safetensors`` holds weights, optimizer memory, torch's generators and the memories of rows that go on;
``state/state.json`` counters, the position in the data, the other generators, the recipe and the versions;
``state/tokenizer`` the tokenizer. No pickle.
A writer that is killed between any two operations leaves the old state or the new one, complete (see
`transpect.interop.directory`); nothing is half written under its name.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.interop import atomic_directory, settled
from transpect.text.tokenizer import Tokenizer
from transpect.train.memories import Memories
from transpect.train.optimizers import load_optimizer_tensors, optimizer_tensors
from transpect.train.randomness import capture, restore

FORMAT = 1
FOLDER, TENSORS, DATA, TOKENIZER = "state", "state.safetensors", "state.json", "tokenizer"


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A state as it stands on disk.

    Attributes:
        tensors: ``model/…``, ``optimizer/…``, ``random/…``; ``memory/…`` where rows go on from batch to batch, and
            ``ema/…`` where the weights are averaged.
        data: step, counters, position in the data, generators, recipe.
        folder: where it was read.
    """

    tensors: dict[str, Tensor]
    data: Data
    folder: Path

    @property
    def step(self) -> int:
        """How many updates had been made."""
        return int(self.data["step"])

    @property
    def tokenizer(self) -> Path:
        """The directory of the run's tokenizer."""
        return self.folder / TOKENIZER

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors below ``name/``."""
        return {
            key.removeprefix(f"{name}/"): value for key, value in self.tensors.items() if key.startswith(f"{name}/")
        }


def write_state(
    run: Path,
    data: Data,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokenizer: Tokenizer,
    memories: Memories,
    average: dict[str, Tensor],
) -> None:
    """Replace the state of a run directory.

    Args:
        run: the run directory.
        data: JSON data of the caller's: ``step`` and what belongs to it.
        model: its weights.
        optimizer: its memory.
        tokenizer: written with the first state, and kept by those that follow.
        memories: of rows that go on.
        average: of the weights; may be empty.

    Raises:
        CheckpointError: it can't be written.
    """
    device = next(model.parameters()).device
    generators, others = capture(device)
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    memory = optimizer_tensors(optimizer, model.named_parameters())
    tensors |= {f"optimizer/{name}": tensor for name, tensor in memory.items()}
    tensors |= {f"random/{name}": tensor for name, tensor in generators.items()}
    tensors |= {f"memory/{name}": tensor for name, tensor in memories.tensors().items()}
    tensors |= {f"ema/{name}": tensor for name, tensor in average.items()}
    content = {"format": FORMAT, **data, "random": others}
    content["digest"] = digest(content)
    with atomic_directory(run / FOLDER, keep=lambda name: name == TOKENIZER) as staging:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, staging / TENSORS)
        (staging / DATA).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
        shutil.copymode(staging / DATA, staging / TENSORS)  # safetensors makes its file private
        if not (run / FOLDER / TOKENIZER).is_dir():
            tokenizer.save(staging / TOKENIZER)


def digest(data: Data) -> str:
    """SHA-256 of JSON data, so that an edited or damaged state is noticed before anything is built on it."""
    return sha256(json.dumps(data, ensure_ascii=True, sort_keys=True).encode()).hexdigest()


def has_state(run: Path) -> bool:
    """Whether a run directory holds a state to go on from."""
    return (settled(run / FOLDER) / DATA).is_file()


def read_state(run: Path) -> TrainingState:
    """The state of a run directory.

    Raises:
        CheckpointError: there is none, it is damaged, or its format is another version's.
    """
    folder = settled(run / FOLDER)
    if not (folder / DATA).is_file():
        raise CheckpointError(
            "this directory holds no training state to go on from",
            value=run,
            remedy="Give a run directory that has state/, or start anew with --resume never.",
        )
    try:
        data: Any = json.loads((folder / DATA).read_text(encoding="utf-8"))
        tensors = load_file(folder / TENSORS)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"the training state can't be read: {error}", file=folder) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise CheckpointError(f"the training state must have format {FORMAT}", value=found, file=folder / DATA)
    if data.pop("digest", None) != digest(data):
        raise CheckpointError(
            "the training state is not what was written",
            file=folder / DATA,
            remedy="It was damaged or edited: take it from a backup, or start anew in another directory.",
        )
    return TrainingState(tensors, data, folder)


def apply_state(state: TrainingState, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put weights, optimizer memory and random generators back, bit for bit.

    Raises:
        CheckpointError: the state is of another model.
    """
    device = next(model.parameters()).device
    try:
        model.load_state_dict(state.part("model"))
    except RuntimeError as error:
        raise CheckpointError(f"the training state is of another model: {error}", file=state.folder) from error
    load_optimizer_tensors(optimizer, model.named_parameters(), state.part("optimizer"))
    restore(state.part("random"), state.data["random"], device)
