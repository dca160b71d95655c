"""Weights that a run leaves as they are stand in each of its states, and on the disk once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from transpect.base.errors import CheckpointError
from transpect.train import Recipe, train
from transpect.train.frozen import FROZEN
from transpect.train.state import DATA, digest, file_digest, read_state

Make = Callable[..., Recipe]
FREEZE = {"train.freeze": ["embedding", "up"]}


def inodes(run: Path) -> set[int]:
    return {(run / state / FROZEN).stat().st_ino for state in ("state", "state.former")}


def test_they_are_written_once_and_a_run_goes_on_from_any_state(
    recipe_of: Make, tmp_path: Path, assert_same: Any, stop_at: Any
) -> None:
    recipe, run = recipe_of("causal", FREEZE), tmp_path / "run"
    stop_at(recipe, run, 0)
    begun, file = read_state(run), (run / "state" / FROZEN).stat()
    trained = {name.removeprefix("model/") for name in load_file(run / "state/state.safetensors") if "model/" in name}
    frozen = {name.removeprefix("model/") for name in load_file(run / "state" / FROZEN)}
    assert frozen and trained and not frozen & trained
    assert frozen | trained == begun.part("model").keys()
    stop_at(recipe, run, 5)
    assert inodes(run) == {file.st_ino}
    assert (run / "state" / FROZEN).stat().st_mtime_ns == file.st_mtime_ns
    assert all(torch.equal(read_state(run).part("model")[name], begun.part("model")[name]) for name in frozen)

    # into another directory, whose file is its own
    stop_at(recipe, tmp_path / "other", 6, resume=str(run))
    assert inodes(tmp_path / "other").isdisjoint(inodes(run))
    # where the newest state is damaged, from the one before
    (run / "state/state.safetensors").write_bytes(b"")
    train(recipe, tmp_path / "straight")
    for directory in (run, tmp_path / "other"):
        train(recipe, directory, resume="auto")
        assert_same(directory, tmp_path / "straight")


def test_where_they_are_damaged_nothing_is_built_on_them(recipe_of: Make, tmp_path: Path, stop_at: Any) -> None:
    stop_at(recipe_of("causal", FREEZE), tmp_path, 3)
    content = (tmp_path / "state" / FROZEN).read_bytes()
    for damaged in (content[:-1], content[:-8] + bytes(8), b""):
        (tmp_path / "state" / FROZEN).write_bytes(damaged)
        with pytest.raises(CheckpointError, match=f"{FROZEN}: the training state is not what was written"):
            read_state(tmp_path)


@pytest.mark.slow
def test_a_state_that_holds_all_weights_in_one_file_is_gone_on_from(
    recipe_of: Make, tmp_path: Path, assert_same: Any, stop_at: Any
) -> None:
    """As states were written before."""
    recipe, run = recipe_of("causal", FREEZE), tmp_path / "run"
    stop_at(recipe, run, 4)
    state = run / "state"
    save_file(read_state(run).tensors, state / "state.safetensors")
    (state / FROZEN).unlink()
    data = json.loads((state / DATA).read_text(encoding="utf-8"))
    del data["digest"], data["files"][FROZEN]
    data["files"]["state.safetensors"] = file_digest(state / "state.safetensors")
    (state / DATA).write_text(json.dumps({**data, "digest": digest(data)}), encoding="utf-8")
    train(recipe, run, resume="auto")
    assert (state / FROZEN).is_file()
    train(recipe, tmp_path / "straight")
    assert_same(run, tmp_path / "straight")
