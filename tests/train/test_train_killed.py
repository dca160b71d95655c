"""A process that is killed between any two operations leaves something complete to go on from.

Go on from it, and the run is the one that never stopped.
"""

import json
import os
import re
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

from transpect.interop import load_model, settled
from transpect.text import load_tokenizer
from transpect.train import Recipe, command_to_go_on, load_recipe, train
from transpect.train.checkpoint import write_checkpoint
from transpect.train.session import Session
from transpect.train.state import read_state

STEPS = 7

Make = Callable[..., Recipe]
Same = Callable[[Path, Path], None]
Stop = Callable[..., None]


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


@pytest.mark.slow
def test_killed_at_any_operation_of_a_save_it_goes_on_from_a_complete_state(
    recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assert_same: Same, stop_at: Stop
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
    straight: Callable[[str], Path],
    recipe_of: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    assert_same: Same,
    stop_at: Stop,
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


@pytest.mark.slow
def test_a_process_that_is_killed_and_one_that_is_asked_to_stop(
    straight: Callable[[str], Path],
    recipe_of: Make,
    plain: Callable[..., dict[str, Any]],
    tmp_path: Path,
    assert_same: Same,
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


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """The library that counts and kills."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path / "kill_points.so"
    source = Path(__file__).with_name("kill_points.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
@pytest.mark.parametrize(("way", "size", "every"), [("kill", 1, 1), ("full", 1, 1), ("kill", 2, 14), ("full", 2, 17)])
def test_killed_or_without_room_at_any_point_of_a_save(
    way: str, size: int, every: int, shim: Path, plain: Callable[..., dict[str, Any]], tmp_path: Path, root: Path
) -> None:
    """Every point where one process saves, and a sample where two do; `kill_points` tells how to try every one."""
    data = plain("causal")
    data["train"]["optimizer"]["lr"] = 1e-3
    data["train"] |= {"eval_every": 100, "max_steps": 6}
    if size > 1:
        data["parallel"] = {"data": "fsdp"}
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(data), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.kill_points", str(file), str(tmp_path), str(size), way, str(every)],
        env=os.environ | {"LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1"},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    good, tried, ends, kinds = map(int, re.findall(r"\d+", done.stdout))
    assert good == tried >= 4 and ends == kinds >= (2 if size == 1 else 1), done.stdout + done.stderr
