"""A run that stops and goes on is bit for bit the run that never stopped; and what may change on the way."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import CheckpointError, ConfigError, DataError
from transpect.train import Recipe, train
from transpect.train.state import digest, read_state

STEPS = 7

Make = Callable[..., Recipe]
Same = Callable[[Path, Path], None]
Stop = Callable[..., None]
Lines = Callable[[Path], list[dict[str, Any]]]


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("objective", ["causal", "masked", "seq2seq"])
def test_n_steps_are_k_steps_and_the_rest(
    objective: str,
    step: int,
    straight: Callable[[str], Path],
    recipe_of: Make,
    tmp_path: Path,
    assert_same: Same,
    stop_at: Stop,
) -> None:
    recipe = recipe_of(objective)
    assert recipe.model.config.last.dropout > 0
    stop_at(recipe, tmp_path / "run", step)
    torch.manual_seed(999)  # whatever the process did in between
    result = train(recipe, tmp_path / "run", resume="auto")
    assert (result.step, result.reason) == (STEPS, "finished")
    assert_same(tmp_path / "run", straight(objective))


def test_a_run_may_stop_after_every_step(
    straight: Callable[[str], Path], recipe_of: Make, tmp_path: Path, assert_same: Same, stop_at: Stop
) -> None:
    for step in range(STEPS):
        stop_at(recipe_of("masked"), tmp_path / "run", step)
    train(recipe_of("masked"), tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", straight("masked"))


def test_the_grid_crosses_epochs_and_stops_inside_them(straight: Callable[[str], Path], lines: Lines) -> None:
    places = {(line["epoch"], line["step"]) for line in lines(straight("causal"))}
    assert len({epoch for epoch, _ in places}) > 1
    assert len(places) == STEPS


def test_it_matters_that_dropout_and_masks_go_on(recipe_of: Make, tmp_path: Path, lines: Lines) -> None:
    """The grid above could not fail if nothing were random."""
    torch.manual_seed(0)
    a, b = (recipe_of("masked", {"train.seed": seed}) for seed in (0, 1))
    train(a, tmp_path / "a")
    train(b, tmp_path / "b")
    assert lines(tmp_path / "a")[0]["loss"] != lines(tmp_path / "b")[0]["loss"]


# what may change on the way, and what may not


def test_a_longer_run_goes_on_and_says_what_changed(recipe_of: Make, tmp_path: Path, told: Any) -> None:
    constant = {"train.schedule": {"kind": "constant"}, "train.eval_every": 100}
    train(recipe_of("causal", {**constant, "train.max_steps": 7}), tmp_path / "long")
    train(recipe_of("causal", {**constant, "train.max_steps": 3}), tmp_path / "run")
    longer = recipe_of("causal", {**constant, "train.max_steps": 7})
    result = train(longer, tmp_path / "run", resume="auto", loggers=[told])
    assert result.step == 7
    assert any("train.max_steps: 3 → 7" in note for note in told.all("note"))
    long, short = (read_state(tmp_path / name).tensors for name in ("long", "run"))
    assert all(torch.equal(long[name], short[name]) for name in long)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.decoder.ffn.d_ff", 24),
        ("model.decoder.dropout", 0.3),
        ("train.seed", 3),
        ("train.optimizer", {"kind": "sgd", "lr": 0.1}),
        ("tokenizer.lowercase", True),
        ("data.seq_len", 12),
        ("data.objective.separate", False),
    ],
)
def test_what_the_run_is_made_of_can_not_change(
    key: str, value: Any, recipe_of: Make, tmp_path: Path, stop_at: Stop
) -> None:
    stop_at(recipe_of("causal"), tmp_path / "run", 2)
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*"))
    with pytest.raises(ConfigError, match=f"must keep {key}"):
        train(recipe_of("causal", {key: value}), tmp_path / "run", resume="auto")
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*")) == before


@pytest.mark.parametrize("which", ["train", "valid"])
def test_other_documents_are_noticed_and_moved_ones_are_not(
    which: str, recipe_of: Make, corpora: dict[str, Path], tmp_path: Path, stop_at: Stop
) -> None:
    text = corpora["causal"].read_text(encoding="utf-8")
    moved, other = tmp_path / "moved.txt", tmp_path / "other.txt"
    moved.write_text(text, encoding="utf-8")
    other.write_text(text.replace("dawn", "dusk"), encoding="utf-8")

    def recipe(path: Path) -> Recipe:
        files = {"train": corpora["causal"], "valid": corpora["causal"], which: path}
        return recipe_of("causal", {f"data.{name}": {"kind": "text", "path": str(files[name])} for name in files})

    stop_at(recipe(corpora["causal"]), tmp_path / "run", 2)
    stop_at(recipe(moved), tmp_path / "run", 3)
    with pytest.raises(DataError, match="must go on with the data"):
        train(recipe(other), tmp_path / "run", resume="auto")


def test_the_tokenizer_is_the_runs_own_and_not_trained_again(recipe_of: Make, tmp_path: Path, stop_at: Stop) -> None:
    run = tmp_path / "run"
    stop_at(recipe_of("causal"), run, 2)
    (tmp_path / "saved").mkdir()
    shutil.copytree(run / "state" / "tokenizer", tmp_path / "saved" / "tokenizer")
    stop_at(recipe_of("causal"), run, 3)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        saved = (tmp_path / "saved" / "tokenizer" / file).read_bytes()
        assert (run / "state" / "tokenizer" / file).read_bytes() == saved == (run / "last" / file).read_bytes()


# where a run starts


def test_never_writes_over_a_run(recipe_of: Make, tmp_path: Path) -> None:
    recipe = recipe_of("causal", {"train.max_steps": 1})
    train(recipe, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"already holds a run.*--resume auto"):
        train(recipe, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "state")
    shutil.rmtree(tmp_path / "run" / "state.former")
    for resume in ("never", "auto"):
        with pytest.raises(ConfigError, match="already holds a run"):
            train(recipe, tmp_path / "run", resume=resume)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="this is a file"):
        train(recipe, tmp_path / "file")


def test_a_directory_is_gone_on_from_into_another(
    straight: Callable[[str], Path], recipe_of: Make, tmp_path: Path, assert_same: Same, stop_at: Stop
) -> None:
    recipe = recipe_of("causal")
    stop_at(recipe, tmp_path / "old", 5)
    before = read_state(tmp_path / "old").data
    stop_at(recipe, tmp_path / "new", 6, resume=str(tmp_path / "old"))
    train(recipe, tmp_path / "new", resume=str(tmp_path / "new"))
    assert_same(tmp_path / "new", straight("causal"))
    assert read_state(tmp_path / "old").data == before
    with pytest.raises(ConfigError, match="already holds a run"):
        train(recipe, tmp_path / "new", resume=str(tmp_path / "old"))


def test_a_place_without_a_state_is_no_place_to_go_on_from(recipe_of: Make, tmp_path: Path) -> None:
    for given in ("atuo", tmp_path):
        with pytest.raises(ConfigError, match="--resume must be auto, never, or a run directory"):
            train(recipe_of("causal"), tmp_path / "run", resume=given)
    with pytest.raises(CheckpointError, match="holds no training state"):
        read_state(tmp_path)


def test_a_finished_run_has_nothing_to_do(recipe_of: Make, tmp_path: Path, told: Any) -> None:
    recipe = recipe_of("causal", {"train.max_steps": 2})
    train(recipe, tmp_path / "run")
    before = read_state(tmp_path / "run").data
    result = train(recipe, tmp_path / "run", resume="auto", loggers=[told])
    assert (result.step, result.reason, result.train_loss) == (2, "finished", None)
    assert "Nothing to do at step 2 of 2" in told.all("note")[-1]
    assert read_state(tmp_path / "run").data == before
    with pytest.raises(ConfigError, match="below the 2 steps"):
        train(recipe_of("causal", {"train.max_steps": 1}), tmp_path / "run", resume="auto")


def test_another_number_of_threads_is_pointed_out(recipe_of: Make, tmp_path: Path, stop_at: Stop, told: Any) -> None:
    stop_at(recipe_of("causal"), tmp_path / "run", 1)
    file = tmp_path / "run" / "state" / "state.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    del data["digest"]
    assert data["made_with"]["threads"] == 1
    data["made_with"]["threads"] = 2
    data["digest"] = digest(data)
    file.write_text(json.dumps(data), encoding="utf-8")
    train(recipe_of("causal"), tmp_path / "run", resume="auto", loggers=[told])
    assert any("Not bit for bit" in note and "threads 2 → 1" in note for note in told.all("note"))


def test_an_edited_state_is_noticed(recipe_of: Make, tmp_path: Path, stop_at: Stop) -> None:
    """Valid JSON with a key gone, emptied or changed is not what was written; nothing may be built on it."""
    stop_at(recipe_of("causal"), tmp_path / "run", 1)
    file = tmp_path / "run" / "state" / "state.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    shutil.rmtree(tmp_path / "run" / "state.former")
    for key in data:
        for changed in ({k: v for k, v in data.items() if k != key}, {**data, key: {}}, {**data, key: None}):
            file.write_text(json.dumps(changed), encoding="utf-8")
            with pytest.raises(CheckpointError, match="training state"):
                read_state(tmp_path / "run")


@pytest.mark.parametrize("damage", ["gone", "short", "zeros", "other"])
@pytest.mark.parametrize("file", ["state.json", "state.safetensors", "tokenizer/tokenizer.json"])
def test_of_a_damaged_state_the_one_before_it_is_gone_on_from(
    file: str,
    damage: str,
    recipe_of: Make,
    straight: Callable[[str], Path],
    tmp_path: Path,
    assert_same: Same,
    stop_at: Stop,
    told: Any,
) -> None:
    """Bytes that went missing or became others, which neither JSON nor safetensors would notice by themselves."""
    run = tmp_path / "run"
    stop_at(recipe_of("causal"), run, 3)
    hurt = run / "state" / file
    content = hurt.read_bytes()
    half = len(content) // 2
    damaged = {"short": content[:-100], "zeros": content[:half] + bytes(len(content) - half), "other": b"{}"}
    if damage == "gone":
        hurt.unlink()
    else:
        hurt.write_bytes(damaged[damage])
    assert read_state(run).step == 2
    if (file, damage) == ("state.safetensors", "zeros"):
        train(recipe_of("causal"), run, resume="auto", loggers=[told])
        assert any("Going on from step 2" in note for note in told.all("note"))
        assert_same(run, straight("causal"))
        return
    (run / "state.former" / file).write_bytes(b"")
    with pytest.raises(CheckpointError, match="training state"):
        train(recipe_of("causal"), run, resume="auto")


def test_metrics_are_cut_back_to_the_state(
    recipe_of: Make, straight: Callable[[str], Path], tmp_path: Path, assert_same: Same, stop_at: Stop, lines: Lines
) -> None:
    """Lines of steps that were made after the last state, and a line that the kill cut in two."""
    run = tmp_path / "run"
    stop_at(recipe_of("causal"), run, 3)
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 4, "loss": 9.9}\n{"step": 5, "lo')
    assert [line["step"] for line in lines(run)] == [1, 2, 3, 4]
    train(recipe_of("causal"), run, resume="auto")
    assert_same(run, straight("causal"))
