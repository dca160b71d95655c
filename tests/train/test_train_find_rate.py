"""The range test finds rates that are known, and leaves a run as it was."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transpect.train import Recipe, find_rate, train
from transpect.train.find_rate import finding
from transpect.train.find_rate.rate_range import Point, lowest, rates, sparkline, steepest, suggested, sweep

Make = Callable[..., Recipe]


@pytest.mark.parametrize("curvature", [1e-3, 1.0, 1e4])
def test_on_a_parabola_it_is_below_where_gradient_descent_diverges(curvature: float) -> None:
    """loss ½·c·x² diverges from rate 2/c on."""
    x = [10.0 / curvature**0.5]

    def step(rate: float) -> float:
        loss = 1.0 + 0.5 * curvature * x[0] ** 2
        x[0] -= rate * curvature * x[0]
        return loss

    points = sweep(step, rates(1e-6 / curvature, 1e4 / curvature, 100))
    found = suggested(points)
    assert found is not None and 1e-3 < found * curvature < 2.0
    assert 0.0 < lowest(points).rate * curvature < 20.0
    assert points[-1].rate * curvature < 1e3, "it stops where it has diverged"


def test_rates_grow_by_equal_multiples() -> None:
    found = rates(1e-6, 1.0, 7)
    assert found == pytest.approx([1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0])


def test_the_running_mean_has_no_bias_and_a_loss_that_is_no_number_ends_it() -> None:
    losses = iter([2.0, 2.0, 2.0, float("nan"), 2.0])
    points = sweep(lambda rate: next(losses), rates(1.0, 16.0, 5))
    assert [point.smoothed for point in points] == pytest.approx([2.0] * 3)
    assert steepest(points) is None


@pytest.mark.parametrize(
    ("values", "line"), [([], ""), ([1.0], "▁"), ([3.0, 3.0], "▁▁"), ([0.0, 1.0, 2.0, 7.0], "▁▂▃█")]
)
def test_a_sparkline(values: list[float], line: str) -> None:
    assert sparkline(values) == line
    assert len(sparkline([float(n) for n in range(500)], 60)) == 60


def test_it_leaves_the_run_and_the_process_alone(recipe_of: Make, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(recipe_of("causal", {"train.max_steps": 3}), run)

    def everything() -> dict[str, bytes]:
        files = (path for path in run.rglob("*") if path.is_file() and not path.name.startswith("find-lr"))
        return {str(path): path.read_bytes() for path in files}

    before, state = everything(), torch.get_rng_state()
    console = Console(file=io.StringIO(), width=120)
    found = [
        find_rate(recipe_of("causal"), run, resume=resume, console=console, n_updates=40)
        for resume in ("never", "auto")
    ]
    assert everything() == before
    assert torch.equal(torch.get_rng_state(), state)
    assert found[0].points[0].loss != found[1].points[0].loss, "a run that goes on begins with its weights"
    lines = (run / "find-lr.jsonl").read_text(encoding="utf-8").splitlines()
    assert [Point(**json.loads(line)) for line in lines] == list(found[1].points)
    assert (run / "find-lr.svg").read_text(encoding="utf-8").startswith("<?xml")
    file: Any = console.file
    assert f"Suggestion: --train.optimizer.lr {found[0].peak:.2g}" in file.getvalue()


@pytest.mark.slow
def test_its_suggestion_is_better_than_a_hundredth_and_a_hundred_times_it(recipe_of: Make, tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    found = find_rate(recipe_of("causal"), tmp_path / "rate", console=console)
    assert found.peak == found.rate is not None
    ways = {"suggested": 1.0, "small": 0.01, "large": 100.0}
    losses = {}
    for name, factor in ways.items():
        changes = {"train.optimizer.lr": (found.rate or 0.0) * factor, "train.max_steps": 25, "train.eval_every": 25}
        losses[name] = train(recipe_of("causal", changes), tmp_path / name).train_loss or 0.0
    assert losses["suggested"] < min(losses["small"], losses["large"]) - 0.3


def test_of_noam_it_says_the_factor(recipe_of: Make, tmp_path: Path) -> None:
    recipe = recipe_of("causal", {"train.schedule": {"kind": "noam", "warmup": 4}, "train.optimizer": "adamw"})
    found = find_rate(recipe, tmp_path, console=Console(file=io.StringIO()), n_updates=40)
    assert found.rate is not None
    assert found.peak == pytest.approx(found.rate * (16 * 4) ** 0.5)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd", "inverse_sqrt", "constant", "plateau"])
@pytest.mark.parametrize("warmup", [0, 300])
def test_what_it_suggests_is_the_peak_of_a_schedule_however_short_the_run(
    schedule: str, warmup: int, recipe_of: Make
) -> None:
    """A run of one step ends where the rate has fallen to its floor, or has hardly risen."""
    changes = {"train.schedule": {"kind": schedule, "warmup": warmup}, "train.max_steps": 1}
    assert finding.top(recipe_of("causal", changes), 16) == pytest.approx(1.0, rel=1e-3)
