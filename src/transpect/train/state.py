"""The training state of a run: everything that its future depends on, in one directory that is replaced as a whole.

``state/state.safetensors`` holds weights, optimizer memory, torch's generators and the memories of rows that go on;
several processes write a file each in its place (see `transpect.train.parallel.shards`). What is not trained stands in
``state/frozen.safetensors`` (see `transpect.train.frozen`).
``state/state.json`` holds counters, the position in the data, the other generators, the recipe, the versions, and the
digest of each file; ``state/tokenizer`` the tokenizer. No pickle.
A writer that is killed between any two operations leaves the old state or the new one, complete (see
`transpect.interop.directory`); nothing is half written under its name. The state before is kept as ``state.former/``,
and gone on from where a file of the newest is found damaged.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core.model import Transformer
from transpect.interop import atomic_directory, settled
from transpect.text.tokenizer import Tokenizer
from transpect.train.frozen import FROZEN, Frozen
from transpect.train.memories import Memories
from transpect.train.optimizers import optimizer_tensors
from transpect.train.parallel.state import TENSORS, Pending
from transpect.train.parallel.world import ALONE, World
from transpect.train.randomness import capture, restore, seed_all

FORMAT = 2
FOLDER, FORMER = "state", "state.former"
DATA, TOKENIZER = "state.json", "tokenizer"


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A state as it stands on disk, its tensors being ``model/…``, ``optimizer/…``, ``random/RANK/…``; ``memory/…``
    where rows go on from batch to batch, and ``ema/…`` where the weights are averaged.

    Attributes:
        data: step, counters, position in the data, generators, recipe.
        folder: where it was read.
        remark: what a person should know of it.
    """

    data: Data
    folder: Path
    remark: str = ""

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors, whole."""
        if (self.folder / TENSORS).is_file():
            files = [self.folder / name for name in (TENSORS, FROZEN)]
            return {name: tensor for file in files if file.is_file() for name, tensor in load_file(file).items()}
        from transpect.train.parallel.shards import read_whole

        return read_whole(self.folder)

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
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    tokenizer: Tokenizer,
    memories: Memories,
    average: dict[str, Tensor],
    frozen: Frozen,
    world: World = ALONE,
) -> Pending:
    """Replace the state of a run directory.

    Args:
        run: the run directory.
        data: JSON data of the caller's: ``step`` and what belongs to it.
        model: its weights.
        optimizer: its memory.
        tokenizer: the run's.
        memories: of rows that go on.
        average: of the weights; may be empty.
        frozen: the weights that are not trained.
        world: the processes that share it out; each must call this.

    Returns:
        what is still being written; a single process has written it.

    Raises:
        CheckpointError: it can't be written.
    """
    device = next(model.parameters()).device
    generators, others = capture(device)
    weights = model.state_dict().items()
    tensors: dict[str, Tensor] = {f"model/{name}": tensor for name, tensor in weights if name not in frozen.names}
    memory = optimizer_tensors(optimizer, model.named_parameters())
    tensors |= {f"optimizer/{name}": tensor for name, tensor in memory.items()}
    tensors |= {f"random/{world.rank}/{name}": tensor for name, tensor in generators.items()}
    tensors |= {f"memory/{name}": tensor for name, tensor in memories.tensors().items()}
    tensors |= {f"ema/{name}": tensor for name, tensor in average.items()}
    frozen.gather(model, world)

    def finish(staging: Path) -> None:
        frozen.write(staging)
        tokenizer.save(staging / TOKENIZER)
        written = sorted(file for file in staging.rglob("*") if file.is_file())
        digests = {file.relative_to(staging).as_posix(): file_digest(file) for file in written}
        frozen.note(files := frozen.linked | digests)
        content = {"format": FORMAT, **data, "layout": world.layout, "random": others, "files": files}
        content["digest"] = digest(content)
        (staging / DATA).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
        for file in written:
            shutil.copymode(staging / DATA, file)  # safetensors makes its files private

    directory = partial(atomic_directory, run / FOLDER, keep=frozen.stays, former=run / FORMER)
    return world.write(tensors, directory, finish)


def digest(data: Data) -> str:
    """SHA-256 of JSON data, so that an edited or damaged state is noticed before anything is built on it."""
    return sha256(json.dumps(data, ensure_ascii=True, sort_keys=True).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """SHA-256 of a file, so that zeros and foreign bytes in it are noticed, which its own header is silent about."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def has_state(run: Path) -> bool:
    """Whether a run directory holds a state to go on from."""
    return any((settled(run / name) / DATA).is_file() for name in (FOLDER, FORMER))


def read_state(run: Path) -> TrainingState:
    """The newest state of a run directory that is whole.

    Raises:
        CheckpointError: there is none, all are damaged, or their format is another version's.
    """
    try:
        return _checked(settled(run / FOLDER), run)
    except CheckpointError as error:
        try:
            former = _checked(settled(run / FORMER), run)
        except CheckpointError:
            raise error from None
        return replace(former, remark=f"Going on from step {former.step}, for of the state after it: {error}")


def open_state(folder: Path, remark: str = "") -> TrainingState:
    """The state in a directory that `read_state` has found whole."""
    return TrainingState(_data(folder), folder, remark)


def reinstate(run: Path, state: TrainingState) -> TrainingState:
    """Let the state that a run goes on from have the name of the newest one, so that the next one is kept beside it."""
    folder = run / FOLDER
    if state.folder != settled(run / FORMER):
        return state
    shutil.rmtree(folder, ignore_errors=True)
    state.folder.rename(folder)
    return replace(state, folder=folder)


def _checked(folder: Path, run: Path) -> TrainingState:
    if not (folder / DATA).is_file():
        raise CheckpointError(
            "this directory holds no training state to go on from",
            value=run,
            remedy="Give a run directory that has state/, or start anew with --resume never.",
        )
    state = open_state(folder)
    for name, wanted in state.data["files"].items():
        try:
            found = file_digest(folder / name)
        except OSError as error:
            raise CheckpointError(f"the training state can't be read: {error}", file=folder) from error
        if found != wanted:
            raise _damaged(folder / name)
    return state


def _data(folder: Path) -> Data:
    try:
        data: Any = json.loads((folder / DATA).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the training state can't be read: {error}", file=folder) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise CheckpointError(f"the training state must have format {FORMAT}", value=found, file=folder / DATA)
    if data.pop("digest", None) != digest(data):
        raise _damaged(folder / DATA)
    return data


def _damaged(file: Path) -> CheckpointError:
    return CheckpointError(
        "the training state is not what was written",
        file=file,
        remedy="It was damaged or edited: take it from a backup, or start anew in another directory.",
    )


def apply_state(state: TrainingState, model: nn.Module, optimizer: torch.optim.Optimizer, world: World = ALONE) -> None:
    """Put weights, optimizer memory and random generators back, bit for bit.

    Another number of processes draws anew, from the seed and the step.

    Raises:
        CheckpointError: the state is of another model.
    """
    device = next(model.parameters()).device
    world.read(state, model, optimizer)
    if state.data["layout"] == world.layout:
        restore(state.part(f"random/{world.rank}"), state.data["random"], device)
    else:
        seed_all(world.seed(state.data["recipe"]["train"]["seed"] + state.step))
