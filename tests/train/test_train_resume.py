"""A run that stops and goes on is bit for bit the run that never stopped, wherever and however it stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from transpect.base.errors import CheckpointError, ConfigError, DataError
from transpect.interop import load_model, settled
from transpect.text import load_tokenizer
from transpect.train import Quiet, Recipe, Record, TrainResult, command_to_go_on, load_recipe, read_metrics, train
from transpect.train.checkpoint import write_checkpoint
from transpect.train.session import Session
from transpect.train.state import read_state

STEPS = 7
CLOCKS = {"seconds", "tokens_per_s"}

Make = Callable[..., Recipe]


def lines(run: Path) -> list[dict[str, Any]]:
    """The metrics without what a clock says."""
    return [{key: value for key, value in line.items() if key not in CLOCKS} for line in read_metrics(run)]


def state_of(run: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that the future depends on."""
    state = read_state(run)
    data = {key: value for key, value in state.data.items() if key != "recipe"}
    data["progress"] = {key: value for key, value in data["progress"].items() if key != "seconds"}
    return state.tensors, data


def assert_same(a: Path, b: Path) -> None:
    """Weights, optimizer memory, generators, counters, data position, metrics, and both checkpoints."""
    (tensors_a, data_a), (tensors_b, data_b) = state_of(a), state_of(b)
    assert data_a == data_b
    assert tensors_a.keys() == tensors_b.keys()
    assert [name for name in tensors_a if not torch.equal(tensors_a[name], tensors_b[name])] == []
    assert lines(a) == lines(b)
    for name in ("best", "last"):
        one, other = (load_file(run / name / "model.safetensors") for run in (a, b))
        assert all(torch.equal(one[key], other[key]) for key in one), name
        for file in ("config.json", "tokenizer.json", "generation_config.json"):
            assert (a / name / file).read_bytes() == (b / name / file).read_bytes()


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, recipe_of: Make) -> Callable[[str], Path]:
    """The run that never stopped, for each objective."""
    runs: dict[str, Path] = {}

    def run(objective: str) -> Path:
        if objective not in runs:
            runs[objective] = tmp_path_factory.mktemp(objective) / "run"
            train(recipe_of(objective), runs[objective])
        return runs[objective]

    return run


def stop_at(recipe: Recipe, run: Path, step: int, resume: str = "auto") -> TrainResult:
    result = train(recipe, run, resume=resume, should_stop=lambda made: made == step)
    assert (result.step, result.reason) == (step, "interrupted")
    return result


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("objective", ["causal", "masked", "seq2seq"])
def test_n_steps_are_k_steps_and_the_rest(
    objective: str, step: int, straight: Callable[[str], Path], recipe_of: Make, tmp_path: Path
) -> None:
    recipe = recipe_of(objective)
    assert recipe.model.config.last.dropout > 0
    stop_at(recipe, tmp_path / "run", step)
    torch.manual_seed(999)  # whatever the process did in between
    result = train(recipe, tmp_path / "run", resume="auto")
    assert (result.step, result.reason) == (STEPS, "finished")
    assert_same(tmp_path / "run", straight(objective))


def test_a_run_may_stop_after_every_step(straight: Callable[[str], Path], recipe_of: Make, tmp_path: Path) -> None:
    for step in range(STEPS):
        stop_at(recipe_of("masked"), tmp_path / "run", step)
    train(recipe_of("masked"), tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", straight("masked"))


def test_the_grid_crosses_epochs_and_stops_inside_them(straight: Callable[[str], Path]) -> None:
    places = {(line["epoch"], line["step"]) for line in lines(straight("causal"))}
    assert len({epoch for epoch, _ in places}) > 1
    assert len(places) == STEPS


def test_it_matters_that_dropout_and_masks_go_on(recipe_of: Make, tmp_path: Path) -> None:
    """The grid above could not fail if nothing were random."""
    torch.manual_seed(0)
    a, b = (recipe_of("masked", {"train.seed": seed}) for seed in (0, 1))
    train(a, tmp_path / "a")
    train(b, tmp_path / "b")
    assert lines(tmp_path / "a")[0]["loss"] != lines(tmp_path / "b")[0]["loss"]


# killed


class Killed(BaseException):
    """Stands for SIGKILL: nothing may clean up after it."""


OPERATIONS = ["os.fsync", "os.replace", "os.rename", "os.unlink", "os.remove", "os.rmdir", "os.mkdir", "os.link"]


@contextmanager
def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The process dies instead of making its file-system operation ``number``; after that it makes none."""
    made: list[str] = []

    def guarded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            if len(made) >= number:
                raise Killed
            made.append(name)
            return real(*args, **options)

        return operation

    def opening(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if set(mode) & set("wax+"):
                if len(made) >= number:
                    raise Killed
                made.append("open")
            return real(file, mode, *args, **options)

        return operation

    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            module, _, attribute = name.partition(".")
            patch.setattr(name, guarded(attribute, getattr(sys.modules[module], attribute)))
        patch.setattr("io.open", opening(open))
        patch.setattr("builtins.open", opening(open))
        yield made


def left_behind(run: Path) -> tuple[str, ...]:
    """What stands in a run directory, the random part of temporary names left out."""
    return tuple(sorted({path.name.partition(".tmp-")[0] for path in run.iterdir()}))


def test_killed_at_any_operation_of_a_save_it_goes_on_from_a_complete_state(
    recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State 2 is on disk; a best checkpoint, the last one and state 4 are being written."""
    recipe, save = recipe_of("causal", {"train.eval_every": 2}), Session.save
    train(recipe, tmp_path / "straight")
    outcomes: dict[tuple[int, tuple[str, ...]], Path] = {}
    died = 0

    def save_and_die(session: Session) -> None:
        nonlocal died
        if session.progress.step == 4:
            assert session.progress.best_step == 4
            kept = session._run
            for number in count():
                session._run = tmp_path / f"run{number}"
                shutil.copytree(kept, session._run)
                try:
                    with killed_at(number, monkeypatch):
                        write_checkpoint(session._run / "best", session._job)
                        save(session)
                    break
                except Killed:
                    died += 1
                outcomes.setdefault((read_state(session._run).step, left_behind(session._run)), session._run)
            session._run = kept
        save(session)

    monkeypatch.setattr(Session, "save", save_and_die)
    stop_at(recipe, tmp_path / "run", 4)
    monkeypatch.setattr(Session, "save", save)
    assert died > 60
    assert {step for step, _ in outcomes} == {2, 4}
    for run in outcomes.values():
        for name in ("best", "last"):
            load_model(settled(run / name))
            load_tokenizer(settled(run / name))
        train(recipe, run, resume="auto")
        assert_same(run, tmp_path / "straight")
        assert left_behind(run) == left_behind(tmp_path / "straight")


def test_killed_at_any_operation_of_the_start_it_can_be_started_again(
    straight: Callable[[str], Path], recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of("causal")
    outcomes: dict[tuple[str, ...], Path] = {}
    for number in count():
        run = tmp_path / f"run{number}"
        try:
            with killed_at(number, monkeypatch):
                stop_at(recipe, run, 0)
            break
        except Killed:
            run.mkdir(exist_ok=True)
            outcomes.setdefault(left_behind(run), run)
    assert number > 20
    for run in outcomes.values():
        train(recipe, run, resume="auto")
        assert_same(run, straight("causal"))
        assert left_behind(run) == left_behind(straight("causal"))


SCRIPT = """
import os, sys
from pathlib import Path
from transpect.train import Quiet, load_recipe, train

class Die(Quiet):
    def advance(self, step):
        if step == int(sys.argv[3]):
            os.kill(os.getpid(), int(sys.argv[4]))

recipe, run = load_recipe(sys.argv[1]), Path(sys.argv[2])
result = train(recipe, run, resume="auto", loggers=[Die()])
sys.exit({"finished": 0, "patience": 0, "interrupted": 130}[result.reason])
"""


def in_a_process(recipe: Path, run: Path, step: int, number: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(recipe), str(run), str(step), str(number)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_process_that_is_killed_and_one_that_is_asked_to_stop(
    straight: Callable[[str], Path], recipe_of: Make, plain: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Real signals to real processes: SIGKILL at step 3, SIGINT at step 5, and then to the end."""
    file, run = tmp_path / "recipe.yaml", tmp_path / "run"
    data = plain("masked")
    data["logging"]["progress"] = "lines"
    file.write_text(json.dumps(data), encoding="utf-8")
    assert in_a_process(file, run, 3, signal.SIGKILL).returncode == -signal.SIGKILL
    assert read_state(run).step == 2
    asked = in_a_process(file, run, 5, signal.SIGINT)
    assert asked.returncode == 130, asked.stderr
    assert read_state(run).step == 5
    assert f"Stopped by SIGINT after step 5 of {STEPS}" in asked.stdout
    assert command_to_go_on(run) in asked.stdout
    # the command that it printed, in its own words
    train(load_recipe(run / "recipe.yaml"), run, resume="auto")
    assert_same(run, straight("masked"))


# what may change on the way, and what may not


def test_a_longer_run_goes_on_and_says_what_changed(recipe_of: Make, tmp_path: Path) -> None:
    constant = {"train.schedule": {"kind": "constant"}, "train.eval_every": 100}
    train(recipe_of("causal", {**constant, "train.max_steps": 7}), tmp_path / "long")
    train(recipe_of("causal", {**constant, "train.max_steps": 3}), tmp_path / "run")
    told = Told()
    longer = recipe_of("causal", {**constant, "train.max_steps": 7})
    result = train(longer, tmp_path / "run", resume="auto", loggers=[told])
    assert result.step == 7
    assert any("train.max_steps: 3 → 7" in note for note in told.notes)
    (long, _), (short, _) = state_of(tmp_path / "long"), state_of(tmp_path / "run")
    assert all(torch.equal(long[name], short[name]) for name in long)


class Told(Quiet):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.records: list[Record] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def record(self, record: Record) -> None:
        self.records.append(record)


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
def test_what_the_run_is_made_of_can_not_change(key: str, value: Any, recipe_of: Make, tmp_path: Path) -> None:
    stop_at(recipe_of("causal"), tmp_path / "run", 2)
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*"))
    with pytest.raises(ConfigError, match=f"must keep {key}"):
        train(recipe_of("causal", {key: value}), tmp_path / "run", resume="auto")
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "run").rglob("*")) == before


@pytest.mark.parametrize("which", ["train", "valid"])
def test_other_documents_are_noticed_and_moved_ones_are_not(
    which: str, recipe_of: Make, corpora: dict[str, Path], tmp_path: Path
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


def test_the_tokenizer_is_the_runs_own_and_not_trained_again(recipe_of: Make, tmp_path: Path) -> None:
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
    for resume in ("never", "auto"):
        with pytest.raises(ConfigError, match="already holds a run"):
            train(recipe, tmp_path / "run", resume=resume)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="this is a file"):
        train(recipe, tmp_path / "file")


def test_a_directory_is_gone_on_from_into_another(
    straight: Callable[[str], Path], recipe_of: Make, tmp_path: Path
) -> None:
    recipe = recipe_of("causal")
    stop_at(recipe, tmp_path / "old", 5)
    before = state_of(tmp_path / "old")[1]
    stop_at(recipe, tmp_path / "new", 6, resume=str(tmp_path / "old"))
    train(recipe, tmp_path / "new", resume=str(tmp_path / "new"))
    assert_same(tmp_path / "new", straight("causal"))
    assert state_of(tmp_path / "old")[1] == before
    with pytest.raises(ConfigError, match="already holds a run"):
        train(recipe, tmp_path / "new", resume=str(tmp_path / "old"))


def test_a_place_without_a_state_is_no_place_to_go_on_from(recipe_of: Make, tmp_path: Path) -> None:
    for given in ("atuo", tmp_path):
        with pytest.raises(ConfigError, match="--resume must be auto, never, or a run directory"):
            train(recipe_of("causal"), tmp_path / "run", resume=given)
    with pytest.raises(CheckpointError, match="holds no training state"):
        read_state(tmp_path)


def test_a_finished_run_has_nothing_to_do(recipe_of: Make, tmp_path: Path) -> None:
    recipe, told = recipe_of("causal", {"train.max_steps": 2}), Told()
    train(recipe, tmp_path / "run")
    before = state_of(tmp_path / "run")[1]
    result = train(recipe, tmp_path / "run", resume="auto", loggers=[told])
    assert (result.step, result.reason, result.train_loss) == (2, "finished", None)
    assert "Nothing to do at step 2 of 2" in told.notes[-1]
    assert state_of(tmp_path / "run")[1] == before
    with pytest.raises(ConfigError, match="below the 2 steps"):
        train(recipe_of("causal", {"train.max_steps": 1}), tmp_path / "run", resume="auto")


def test_another_number_of_threads_is_pointed_out(recipe_of: Make, tmp_path: Path) -> None:
    told = Told()
    stop_at(recipe_of("causal"), tmp_path / "run", 1)
    file = tmp_path / "run" / "state" / "state.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["made_with"]["threads"] == 1
    data["made_with"]["threads"] = 2
    file.write_text(json.dumps(data), encoding="utf-8")
    train(recipe_of("causal"), tmp_path / "run", resume="auto", loggers=[told])
    assert any("Not bit for bit" in note and "threads 2 → 1" in note for note in told.notes)


@pytest.mark.parametrize("damage", ["no tensors", "short tensors", "bad json", "other format"])
def test_a_damaged_state_is_named(damage: str, recipe_of: Make, tmp_path: Path) -> None:
    stop_at(recipe_of("causal"), tmp_path / "run", 1)
    state = tmp_path / "run" / "state"
    if damage == "no tensors":
        (state / "state.safetensors").unlink()
    elif damage == "short tensors":
        (state / "state.safetensors").write_bytes((state / "state.safetensors").read_bytes()[:-100])
    elif damage == "bad json":
        (state / "state.json").write_text("{", encoding="utf-8")
    else:
        (state / "state.json").write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="training state"):
        train(recipe_of("causal"), tmp_path / "run", resume="auto")


def test_metrics_are_cut_back_to_the_state(recipe_of: Make, straight: Callable[[str], Path], tmp_path: Path) -> None:
    """Lines of steps that were made after the last state, and a line that the kill cut in two."""
    run = tmp_path / "run"
    stop_at(recipe_of("causal"), run, 3)
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 4, "loss": 9.9}\n{"step": 5, "lo')
    assert [line["step"] for line in lines(run)] == [1, 2, 3, 4]
    train(recipe_of("causal"), run, resume="auto")
    assert_same(run, straight("causal"))
