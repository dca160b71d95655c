"""When a run ends: patience, numbers that are none, signals; and that it says so."""

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.train import Quiet, Recipe, TrainingError, read_metrics, session, train
from transpect.train.best import Best
from transpect.train.progress import Progress
from transpect.train.state import read_state
from transpect.train.updates import Update
from transpect.train.watch import Watch

Make = Callable[..., Recipe]


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell starts what it puts in the background with SIGINT ignored."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def test_stops_early_after_patience_and_again_at_once_when_gone_on_with(recipe_of: Make, tmp_path: Path) -> None:
    changes = {"train.eval_every": 1, "train.optimizer.lr": 1e-30, "train.patience": 3}
    result = train(recipe_of("causal", changes), tmp_path)
    assert (result.step, result.reason, result.best_step) == (4, "patience", 1)
    assert read_state(tmp_path).step == 4
    again = train(recipe_of("causal", changes), tmp_path, resume="auto")
    assert (again.step, again.reason) == (4, "patience")
    longer = train(recipe_of("causal", changes | {"train.patience": 5}), tmp_path, resume="auto")
    assert (longer.step, longer.reason) == (6, "patience")


@pytest.mark.parametrize("min_delta", [0.0, 0.5])
def test_patience_counts_evaluations_without_a_fall_by_min_delta(min_delta: float) -> None:
    progress = Progress()
    seen = []
    for step, loss in enumerate((5.0, 4.8, 4.6, 4.4, 4.5, 4.3), 1):
        progress.step = step
        place = progress.judge(loss, Best(), min_delta)
        seen.append((place == 0, progress.stale))
    if min_delta:
        assert seen == [(True, 0), (True, 1), (True, 2), (True, 0), (False, 1), (True, 2)]
    else:
        assert seen == [(True, 0), (True, 0), (True, 0), (True, 0), (False, 1), (True, 0)]
    assert (progress.best_value, progress.best_step) == (4.3, 6)
    assert progress.is_stale(2) == bool(min_delta)
    assert not progress.is_stale(None)


@pytest.mark.parametrize("what", ["loss", "grad_norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_stops_the_run_and_spares_what_was_saved(
    what: str, value: float, recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    real = session.update
    made = []

    def update(*args: Any, **options: Any) -> Update:
        done = real(*args, **options)
        made.append(1)
        numbers = {"loss": done.loss, "grad_norm": done.grad_norm}
        if len(made) == 5:
            numbers[what] = torch.tensor(value)
        return Update(numbers["loss"], numbers["grad_norm"], done.n_labels, done.n_tokens)

    monkeypatch.setattr(session, "update", update)
    with pytest.raises(TrainingError, match=r"at step 5.*resume auto"):
        train(recipe_of("causal"), tmp_path, loggers=[told])
    assert told.heard[-1] == ("close", None)
    assert read_state(tmp_path).step == 4
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3, 4]
    monkeypatch.setattr(session, "update", real)
    assert train(recipe_of("causal"), tmp_path, resume="auto").step == 7


def test_weights_that_really_explode_are_noticed(recipe_of: Make, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="must be finite"):
        train(recipe_of("causal", {"train.optimizer": {"kind": "sgd", "lr": 1e38}, "train.clip": None}), tmp_path)


def test_off_the_cpu_losses_are_looked_at_late_and_named_exactly() -> None:
    def update(loss: float) -> Update:
        return Update(torch.tensor(loss), torch.tensor(1.0), 1, 1)

    watch = Watch(torch.device("cuda"))
    watch.note(1, update(1.0))
    watch.look()
    for step, loss in ((2, 1.0), (3, math.nan), (4, 1.0)):
        watch.note(step, update(loss))
    with pytest.raises(TrainingError, match="at step 3"):
        watch.look()
    with pytest.raises(TrainingError, match="at step 9"):
        Watch(torch.device("cpu")).note(9, update(math.inf))


def test_where_losses_are_looked_at_late_nothing_bad_is_saved_or_written_down(
    recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = session.update, []

    def update(*args: Any, **options: Any) -> Update:
        done = real(*args, **options)
        made.append(1)
        return Update(torch.tensor(math.nan), done.grad_norm, 1, 1) if len(made) == 3 else done

    monkeypatch.setattr(session, "update", update)
    monkeypatch.setattr(session, "Watch", lambda _device: Watch(torch.device("cuda")))
    for due in ("save_every", "log_every", "eval_every"):
        made.clear()
        rare = {f"train.{name}": 100 for name in ("save_every", "log_every", "eval_every")}
        with pytest.raises(TrainingError, match="at step 3"):
            train(recipe_of("causal", {**rare, f"train.{due}": 4}), tmp_path / due)
        assert len(made) == 4
        assert read_state(tmp_path / due).step == 0
        assert read_metrics(tmp_path / due) == []
        assert not (tmp_path / due / "last").exists()
        assert not (tmp_path / due / "best").exists()


class Signal(Quiet):
    """Sends this process a signal after a step."""

    def __init__(self, step: int, number: int) -> None:
        self.step, self.number = step, number

    def advance(self, step: int) -> None:
        if step == self.step:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(
    number: signal.Signals, recipe_of: Make, tmp_path: Path, told: Any
) -> None:
    run = tmp_path / "my run"
    handlers = [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)]
    result = train(recipe_of("causal"), run, loggers=[Signal(5, number), told])
    assert (result.step, result.reason) == (5, "interrupted")
    assert read_state(run).step == 5
    note = told.all("note")[-1]
    assert f"{number.name} after step 5 of 7" in note
    assert note.endswith(f"\n  transpect train '{run}/recipe.yaml' --out '{run}' --resume auto")
    assert [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_second_signal_stops_at_once(recipe_of: Make, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(recipe_of("causal"), tmp_path, loggers=[Signal(5, signal.SIGINT), Signal(5, signal.SIGINT)])
    assert read_state(tmp_path).step == 4
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_can_be_left_alone_and_a_command_can_be_given(recipe_of: Make, tmp_path: Path, told: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(recipe_of("causal"), tmp_path / "a", loggers=[Signal(3, signal.SIGINT)], handle_signals=False)
    train(recipe_of("causal"), tmp_path / "b", loggers=[told], should_stop=lambda step: step == 1, command="again!")
    assert told.all("note")[-1].endswith("To go on:\n  again!")


def test_trains_off_the_main_thread_too(recipe_of: Make, tmp_path: Path) -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(train(recipe_of("causal"), tmp_path)))
    thread.start()
    thread.join()
    assert results[0].reason == "finished"
