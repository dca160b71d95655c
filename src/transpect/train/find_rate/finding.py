"""``transpect train --find-lr``: which learning rate suits a recipe, by a hundred updates that nothing is kept of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from transpect.base.devices import resolve_device
from transpect.base.files import check_writable
from transpect.train.dynamics import Dynamics
from transpect.train.errors import TrainingError
from transpect.train.find_rate.rate_range import (
    Point,
    draw_points,
    lowest,
    rates,
    sparkline,
    suggested,
    sweep,
    write_points,
)
from transpect.train.job import build
from transpect.train.loop import threads
from transpect.train.randomness import seed_all, unchanged_randomness
from transpect.train.recipe import Recipe
from transpect.train.resume import origin
from transpect.train.schedules import Scale
from transpect.train.state import apply_state, read_state
from transpect.train.updates import draw, update

UPDATES = 100
BELOW, ABOVE = 1e-4, 1e3
"""The range, as multiples of the optimizer's default rate."""
LONG = 10_000
"""Updates in which a schedule reaches its highest rate, even if a run ends before."""
FIGURE, POINTS = "find-lr.svg", "find-lr.jsonl"


@dataclass(frozen=True)
class FoundRate:
    """What the test found.

    Attributes:
        points: an update each.
        rate: that is suggested; None if the loss fell at none.
        peak: the ``train.optimizer.lr`` by which the schedule's highest rate is that.
    """

    points: tuple[Point, ...]
    rate: float | None
    peak: float | None


def find_rate(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: str | Path = "never",
    console: Console | None = None,
    n_updates: int = UPDATES,
) -> FoundRate:
    """Train at growing rates, and write ``find-lr.svg`` and ``find-lr.jsonl`` into a directory.

    Nothing else there is written or read, but a state to begin with where ``resume`` names one: a run's weights, its
    position in the data and its generators are afterwards what they were.

    Args:
        recipe: its rate and the shape of its schedule are not used.
        out: where to write.
        resume: as of `train`; ``never`` begins with the weights that a run would begin with.
        console: where the result is shown.
        n_updates: how many rates.

    Raises:
        ConfigError: a recipe whose parts do not fit, or a directory that can't be written to.
        DataError: data that can't be read.
        TrainingError: the very first loss is not a number.
    """
    folder, spec = Path(out), recipe.train
    check_writable(folder)
    source = None if resume == "never" else origin(folder, resume)
    device = resolve_device(spec.device)
    with unchanged_randomness(device), threads(spec.threads):
        state = None if source is None else read_state(source)
        job = build(recipe, state)
        seed_all(spec.seed)
        optimizer = spec.optimizer.build(job.model, recipe.grouping)
        dynamics = Dynamics(job.recipe.train, job.model, job.config.d_model)
        if state is not None:
            apply_state(state, job.model, optimizer)
            job.memories.load(state.part("memory"), device)
        job.model.train()

        def step(rate: float) -> float:
            done = update(
                job.model,
                optimizer,
                draw(job.batches, spec.accumulate),
                rate=rate,
                clip=spec.clip,
                criterion=job.criterion,
                precision=spec.precision,
                memories=job.memories,
                scale=dynamics.scale,
            )
            return float(done.loss) if done.made else step(rate)

        usual = spec.optimizer.default_rate
        points = sweep(step, rates(usual * BELOW, usual * ABOVE, n_updates))
    if not points:
        raise TrainingError("the loss must be finite before a rate can be found, and the first one is not")
    rate = suggested(points)
    peak = None if rate is None else rate / top(job.recipe, job.config.d_model)
    found = FoundRate(tuple(points), rate, peak)
    folder.mkdir(parents=True, exist_ok=True)
    write_points(folder / POINTS, points)
    draw_points(folder / FIGURE, points, rate)
    _tell(found, folder, Console() if console is None else console)
    return found


def top(recipe: Recipe, d_model: int) -> float:
    """The highest rate of a schedule whose peak is 1, in a run that is long enough to reach it: 1, but for `Noam`."""
    steps = recipe.train.max_steps + LONG
    return max(recipe.train.schedule.rate(n, Scale(1.0, steps, d_model)) for n in range(1, steps + 1))


def _tell(found: FoundRate, folder: Path, console: Console) -> None:
    points, low = found.points, lowest(found.points)
    lines = [
        f"loss from rate {points[0].rate:.1e} to {points[-1].rate:.1e}:",
        sparkline([point.smoothed for point in points]),
    ]
    if found.rate is None:
        lines.append("The loss fell at no rate: look at the data and at the objective first.")
    else:
        lines += [
            f"It falls fast at {found.rate:.2g} and is lowest at {low.rate:.2g}; higher rates do harm.",
            f"Suggestion: --train.optimizer.lr {found.peak:.2g}",
        ]
    console.print("\n".join([*lines, f"Figure: {folder / FIGURE}"]), highlight=False, soft_wrap=True)
