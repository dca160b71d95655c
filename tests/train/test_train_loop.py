"""What a run leaves behind, what it says, and what it leaves alone."""

import io
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

import transpect
from transpect.interop import load_config, load_generation, load_model, resolve
from transpect.text import load_tokenizer
from transpect.train import (
    Evaluation,
    Recipe,
    Run,
    load_recipe,
    read_metrics,
    session,
    train,
)
from transpect.train.state import read_state
from transpect.train.updates import Update
from transpect.train.watching.display import Lines
from transpect.train.watching.logger import TensorBoard
from transpect.train.watching.stopwatch import Stopwatch

Make = Callable[..., Recipe]
OBJECTIVES = ["causal", "masked", "seq2seq"]


# what it leaves behind


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_leaves_a_run_directory_that_others_open(objective: str, recipe_of: Make, tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    result = train(recipe_of(objective, {"logging.tensorboard": True}), run)
    assert {path.name for path in run.iterdir()} == {
        "best",
        "last",
        "metrics.jsonl",
        "recipe.yaml",
        "state",
        "state.former",
        "tensorboard",
    }
    assert result.out == run
    assert (result.step, result.reason) == (7, "finished")
    for name in ("best", "last"):
        folder = run / name
        names = {path.name for path in folder.iterdir()}
        assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= names
        model, tokenizer = load_model(folder), load_tokenizer(folder)
        assert model.config.vocab_size == tokenizer.vocab_size
        assert model.config.last.visibility.kind in ("causal", "full")
        assert load_generation(folder)["pad_token_id"] == tokenizer.pad_id
    assert resolve(run) == run / "best"
    assert next((run / "tensorboard").iterdir()).stat().st_size > 0


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_says_how_to_write_with_it(objective: str, recipe_of: Make, tmp_path: Path) -> None:
    recipe = recipe_of(objective, {"train.max_steps": 1})
    train(recipe, tmp_path)
    expected = dict(recipe.objective.generation(load_tokenizer(tmp_path / "best")))
    assert expected
    for name in ("best", "last"):
        written = json.loads((tmp_path / name / "generation_config.json").read_text(encoding="utf-8"))
        assert expected.items() <= written.items()


def test_a_trained_model_is_loaded_by_the_facade(recipe_of: Make, tmp_path: Path) -> None:
    train(recipe_of("causal"), tmp_path / "run")
    lm = transpect.load(tmp_path / "run", device="cpu")
    assert isinstance(lm.generate("the c", max_new_tokens=3), str)


@pytest.mark.parametrize("positions", ["learned", "alibi"])  # of the family, and of none
@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_a_saved_model_knows_nothing_of_packed_documents(
    objective: str, positions: str, recipe_of: Make, tmp_path: Path
) -> None:
    packed = {"data.objective": {"kind": objective, "pack": True}, "model.positions": positions}
    recipe = recipe_of(objective, {"train.max_steps": 1, **packed})
    train(recipe, tmp_path)
    for name in ("best", "last"):
        saved = load_config(tmp_path / name)
        assert saved.last.visibility == recipe.model.config.last.visibility
        family = {"causal": "gpt2", "masked": "bert"}[objective] if positions == "learned" else "transpect"
        assert json.loads((tmp_path / name / "config.json").read_text(encoding="utf-8"))["model_type"] == family


def test_last_is_the_state_and_best_is_the_best(recipe_of: Make, tmp_path: Path) -> None:
    """A learning rate that soon does harm, so that the two differ."""
    harmful = {"train.optimizer.lr": 3.0, "train.clip": None, "train.eval_every": 1, "train.schedule.warmup": 7}
    result = train(recipe_of("causal", harmful), tmp_path)
    losses = {line["step"]: line["valid_loss"] for line in read_metrics(tmp_path)}
    assert result.best_value == min(losses.values())
    assert result.best_step == min(losses, key=lambda step: losses[step])
    assert result.best_step != 7
    state = read_state(tmp_path).part("model")
    last, best = (load_model(tmp_path / name).state_dict() for name in ("last", "best"))
    assert all(torch.equal(state[name], last[name]) for name in last)
    assert not all(torch.equal(best[name], last[name]) for name in last)


def test_without_anything_to_evaluate_on_best_is_the_last(recipe_of: Make, tmp_path: Path) -> None:
    result = train(recipe_of("causal", {"data.valid": None}), tmp_path)
    assert (result.best_step, result.evaluation) == (None, None)
    assert not any("valid_loss" in line for line in read_metrics(tmp_path))
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("best", "last"))
    assert one == other


def test_the_recipe_that_it_leaves_gives_the_same_run(recipe_of: Make, tmp_path: Path) -> None:
    train(recipe_of("seq2seq"), tmp_path / "a")
    train(load_recipe(tmp_path / "a" / "recipe.yaml"), tmp_path / "b")
    assert (tmp_path / "a" / "recipe.yaml").read_bytes() == (tmp_path / "b" / "recipe.yaml").read_bytes()
    a, b = (read_state(tmp_path / name).tensors for name in "ab")
    assert all(torch.equal(a[name], b[name]) for name in a)


# metrics


@pytest.mark.parametrize(("log_every", "eval_every"), [(1, 3), (2, 3), (5, 2), (100, 100)])
def test_one_line_a_step_where_something_is_due(
    log_every: int, eval_every: int, recipe_of: Make, tmp_path: Path
) -> None:
    train(recipe_of("causal", {"train.log_every": log_every, "train.eval_every": eval_every}), tmp_path)
    lines = read_metrics(tmp_path)
    evaluated = {step for step in range(1, 8) if step % eval_every == 0 or step == 7}
    assert [line["step"] for line in lines] == sorted(evaluated | {s for s in range(1, 8) if s % log_every == 0})
    for line in lines:
        always = {"step", "epoch", "loss", "lr", "grad_norm", "tokens", "tokens_per_s", "seconds"}
        assert always <= line.keys()
        assert ("valid_loss" in line) == (line["step"] in evaluated)
        assert all(math.isfinite(value) for value in line.values() if value is not None)
        if "valid_loss" in line:
            assert line["valid_perplexity"] == pytest.approx(math.exp(line["valid_loss"] or 0.0))


def test_the_numbers_are_those_of_the_updates(recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Update] = []
    real = session.update
    monkeypatch.setattr(session, "update", lambda *args, **options: done.append(real(*args, **options)) or done[-1])
    result = train(recipe_of("causal"), tmp_path)
    tokens = 0
    for line, update in zip(read_metrics(tmp_path), done, strict=True):
        tokens += update.n_tokens
        assert (line["loss"], line["grad_norm"]) == (float(update.loss), float(update.grad_norm))
        assert line["tokens"] == tokens
    assert result.train_loss == float(done[-1].loss)
    assert isinstance(result.evaluation, Evaluation)


def test_tensorboard_has_the_same_numbers_and_no_step_twice_after_a_resume(recipe_of: Make, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recipe = recipe_of("causal", {"logging.tensorboard": True})
    # a session that went on to step 5 and whose state of then was lost
    train(recipe, tmp_path, should_stop=lambda step: step == 3)
    lost = TensorBoard(tmp_path / "tensorboard")
    lost.start(Run(tmp_path, "", 3, 7, 1, "cpu"))
    lost.record({"step": 4, "loss": 99.0})
    lost.record({"step": 5, "loss": 99.0})
    lost.close()
    train(recipe, tmp_path, resume="auto")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    for name, tag in (("loss", "train/loss"), ("lr", "train/lr"), ("valid_loss", "valid/loss")):
        expected = [(line["step"], line[name]) for line in read_metrics(tmp_path) if name in line]
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        assert (
            found == pytest.approx(expected, rel=1e-6) if False else [s for s, _ in found] == [s for s, _ in expected]
        )
        assert [v for _, v in found] == pytest.approx([v for _, v in expected], rel=1e-6)


# what it says


def shown(recipe: Recipe, out: Path, *, terminal: bool, **options: Any) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160, legacy_windows=False)
    train(recipe, out, console=console, **options)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_prints_plain_lines_where_there_is_no_terminal(recipe_of: Make, tmp_path: Path) -> None:
    text = shown(recipe_of("causal", {"logging.progress": "auto"}), tmp_path / "run", terminal=False)
    assert "\x1b" not in text
    assert text.startswith("model:\n  vocab_size: ")
    assert "kind: adamw" in text
    lines = [line for line in text.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in lines] == [f"{step}/7" for step in range(1, 8)]
    for word in ("loss ", "lr ", "grad norm ", "tokens/s", "left"):
        assert word in lines[3], word
    for word in ("valid loss", "perplexity", "bits/character"):
        assert word in lines[2], word
        assert word not in lines[3], word
    assert "Done: 7 steps" in text


def test_the_time_left_is_that_of_the_steps_left() -> None:
    now, console = 100.0, Console(file=io.StringIO(), width=200)
    lines = Lines(console, clock=lambda: now)
    lines.start(Run(Path("out"), "", 10, 50, 1, "cpu"))
    now = 130.0
    lines.record({"step": 20, "loss": 1.0, "lr": 0.1, "grad_norm": 1.0, "tokens_per_s": 9.0, "seconds": 1e6})
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().endswith("  0:01:30 left\n")


def test_draws_a_bar_on_a_terminal(recipe_of: Make, tmp_path: Path) -> None:
    text = shown(recipe_of("causal", {"logging.progress": "auto"}), tmp_path / "run", terminal=True)
    assert "\x1b" in text
    for word in ("7/7", "100%", "loss ", "lr ", "grad norm ", "tokens/s", "valid loss", "0:00:00"):
        assert word in text, word


def test_prints_nothing_if_asked(recipe_of: Make, tmp_path: Path) -> None:
    assert shown(recipe_of("causal"), tmp_path / "run", terminal=True) == ""


def test_a_logger_is_told_in_order_and_closed_last(recipe_of: Make, tmp_path: Path, told: Any) -> None:
    train(recipe_of("causal"), tmp_path, loggers=[told])
    start = told.all("start")[0]
    assert (told.heard[0][0], told.heard[-1][0]) == ("start", "close")
    assert (start.first, start.last, start.device, start.out) == (0, 7, "cpu", tmp_path)
    assert start.recipe in (tmp_path / "recipe.yaml").read_text(encoding="utf-8")
    assert start.n_parameters == sum(weight.numel() for weight in load_model(tmp_path / "last").parameters())
    assert told.all("advance") == list(range(1, 8))
    assert told.all("record") == read_metrics(tmp_path)


# what it leaves alone


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_process_is_as_it_was(objective: str, recipe_of: Make, tmp_path: Path) -> None:
    torch.manual_seed(1)
    before: tuple[Tensor, object, int] = (torch.get_rng_state(), random.getstate(), torch.get_num_threads())
    train(recipe_of(objective, {"train.threads": 1, "train.max_steps": 2}), tmp_path)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), torch.get_num_threads()) == before[1:]


def test_the_same_recipe_trains_the_same_model_whatever_came_before(recipe_of: Make, tmp_path: Path) -> None:
    for name in ("a", "b"):
        torch.manual_seed(hash(name) % 100)
        torch.rand(7)
        train(recipe_of("causal", {"train.max_steps": 2}), tmp_path / name)
    a, b = (read_state(tmp_path / name).part("model") for name in "ab")
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_dropout_is_on_in_every_step_also_after_an_evaluation(
    objective: str, recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap 6."""
    modes: list[bool] = []
    real = session.update

    def spy(model: torch.nn.Module, *args: Any, **options: Any) -> Update:
        modes.append(all(module.training for module in model.modules()))
        return real(model, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "update", spy)
    train(recipe_of(objective, {"train.eval_every": 1}), tmp_path)
    assert modes == [True] * 7


def test_evaluations_do_not_change_the_training(recipe_of: Make, tmp_path: Path) -> None:
    for name, eval_every in (("often", 1), ("never", 100)):
        train(recipe_of("masked", {"train.eval_every": eval_every}), tmp_path / name)
    often, never = (read_state(tmp_path / name).tensors for name in ("often", "never"))
    assert all(torch.equal(often[name], never[name]) for name in often)


# precision


def test_bf16_trains_with_weights_and_memory_in_float32(recipe_of: Make, tmp_path: Path) -> None:
    for precision in ("fp32", "bf16"):
        train(recipe_of("causal", {"train.precision": precision}), tmp_path / precision)
    exact, rough = (read_state(tmp_path / precision).tensors for precision in ("fp32", "bf16"))
    floats = {name for name, tensor in rough.items() if tensor.is_floating_point()}
    assert {rough[name].dtype for name in floats} == {torch.float32}
    last = [read_metrics(tmp_path / precision)[-1]["valid_loss"] for precision in ("fp32", "bf16")]
    assert last[0] != last[1]
    assert last[0] == pytest.approx(last[1], rel=0.02)
    assert any(not torch.equal(exact[name], rough[name]) for name in floats)


def test_it_learns(recipe_of: Make, tmp_path: Path) -> None:
    """Five sentences by heart: from ln 23 nats a character to less than one third of that."""
    changes = {"train.max_steps": 60, "train.eval_every": 60, "train.save_every": 60, "train.log_every": 60}
    result = train(recipe_of("causal", changes | {"model.dropout": 0.0, "model.attention.dropout": 0.0}), tmp_path)
    assert result.train_loss is not None
    assert result.train_loss < 1.0


def test_a_stopwatch_stands_still_where_it_is_told_to() -> None:
    now = 0.0
    watch = Stopwatch(lambda: now)
    now = 2.0
    with watch.paused():
        now = 5.0
    now = 6.0
    assert watch.lap() == 3.0
    now = 7.0
    assert watch.lap() == 1.0
