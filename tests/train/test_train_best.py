"""Which checkpoints are kept, by any measure, ties and numbers that are none included; and that a resume keeps them."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.base.errors import ConfigError
from transpect.train import Recipe, read_metrics, train
from transpect.train import session as sessions
from transpect.train.best import Best
from transpect.train.progress import Progress

Make = Callable[..., Recipe]
VALUES = st.lists(st.sampled_from([1.0, 2.0, 3.0, math.nan, math.inf]), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from(["min", "max"]), st.integers(1, 4))
def test_the_best_are_those_of_a_sort_that_prefers_the_earlier(values: list[float], mode: Any, keep: int) -> None:
    best, progress = Best("x", mode, keep), Progress()
    for step, value in enumerate(values, 1):
        progress.step = step
        place = progress.judge(value, best)
        real = [(own if mode == "min" else -own, at) for at, own in enumerate(values[:step], 1) if not math.isnan(own)]
        expected = [at for _, at in sorted(real)][:keep]
        assert [at for at, _ in progress.best] == expected
        assert place == (expected.index(step) if step in expected else None)


@pytest.mark.parametrize(
    ("metric", "sign"),
    [("valid_loss", 1), ("valid_accuracy", -1), ("valid_macro_f1", -1), ("grad_norm", 1), ("grad_norm/head", 1)],
)
def test_a_name_tells_which_way_is_better(metric: str, sign: int) -> None:
    assert Best(metric).sign == sign
    assert Best(metric, "max").sign == -1


def test_a_name_that_does_not_tell_needs_a_mode() -> None:
    with pytest.raises(ConfigError, match="mode must be min or max"):
        Best("tokens_per_s")


def test_a_metric_that_is_not_measured_is_named_at_the_first_evaluation(recipe_of: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be a measure") as caught:
        train(recipe_of("masked", {"train.best": {"metric": "valid_accuracy"}}), tmp_path)
    assert "valid_loss" in caught.value.remedy


def test_it_needs_something_to_evaluate_on(recipe_of: Make) -> None:
    with pytest.raises(ConfigError, match=r"data\.valid"):
        recipe_of("causal", {"data.valid": None, "train.best.keep": 2})


BEST = {"train.best": {"metric": "grad_norm", "mode": "max", "keep": 2}, "train.eval_every": 1, "train.max_steps": 9}


def kept(run: Path) -> set[str]:
    return {folder.name for folder in (run / "top").iterdir()}


def test_the_best_are_on_disk_and_the_same_after_stops_and_resumes(
    recipe_of: Make, tmp_path: Path, assert_same: Callable[[Path, Path], None], stop_at: Callable[..., None]
) -> None:
    recipe = recipe_of("causal", BEST)
    result = train(recipe, tmp_path / "straight")
    norms = {int(line["step"] or 0): line["grad_norm"] for line in read_metrics(tmp_path / "straight")}
    first, second = sorted(norms, key=lambda step: (-(norms[step] or 0.0), step))[:2]
    assert (result.best_step, result.best_value) == (first, norms[first])
    assert kept(tmp_path / "straight") == {f"step-{first}", f"step-{second}"}
    names = ("model.safetensors", "config.json", "tokenizer.json")
    for name in names:
        top = tmp_path / "straight" / "top" / f"step-{first}" / name
        assert top.read_bytes() == (tmp_path / "straight" / "best" / name).read_bytes()
    for step in (3, 5):
        stop_at(recipe, tmp_path / "run", step)
    train(recipe, tmp_path / "other", resume=tmp_path / "run")
    train(recipe, tmp_path / "run", resume="auto")
    for run in ("run", "other"):
        assert_same(tmp_path / run, tmp_path / "straight")
        assert kept(tmp_path / run) == kept(tmp_path / "straight")


def test_what_a_state_names_is_there_whenever_it_is_killed(
    recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each write and each removal of a checkpoint: all that the last state names is complete."""
    from transpect.train.state import has_state, read_state

    run, looks = tmp_path / "run", 0

    def watching(name: str) -> None:
        real = getattr(sessions, name)

        def look(*args: Any) -> Any:
            nonlocal looks
            if has_state(run):
                looks += 1
                named = {f"step-{step}" for step, _ in read_state(run).data["progress"]["best"]}
                assert all((run / "top" / one / "model.safetensors").is_file() for one in named)
            return real(*args)

        monkeypatch.setattr(sessions, name, look)

    for name in ("write_checkpoint", "write_state", "remove_others"):
        watching(name)
    train(recipe_of("causal", BEST | {"train.save_every": 3}), run)
    assert looks > 10


def test_a_run_can_t_change_what_it_is_judged_by(recipe_of: Make, tmp_path: Path, stop_at: Callable[..., None]) -> None:
    stop_at(recipe_of("causal"), tmp_path, 3)
    with pytest.raises(ConfigError, match=r"train\.best\.metric"):
        train(recipe_of("causal", {"train.best.metric": "valid_perplexity"}), tmp_path, resume="auto")


def test_patience_goes_by_the_metric(recipe_of: Make, tmp_path: Path) -> None:
    """A number that only falls, of which more is asked for."""
    changes = {"train.best": {"metric": "lr", "mode": "max"}, "train.patience": 2, "train.eval_every": 1}
    result = train(recipe_of("causal", changes | {"train.schedule": {"kind": "linear", "warmup": 1}}), tmp_path)
    assert (result.reason, result.step, result.best_step) == ("patience", 3, 1)
