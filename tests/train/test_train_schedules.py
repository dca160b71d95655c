"""The rate after n updates is f(n): shapes, other people's formulas, and what the optimizer is really given."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.codec import from_data, to_data
from transpect.base.errors import ConfigError
from transpect.train import Constant, Cosine, Linear, Noam, Recipe, Schedule, session, train
from transpect.train.schedules import Scale

WARMUPS = [0, 1, 7, 40, 100, 250]
FALLING = [Linear(), Linear(floor=0.3), Cosine(), Cosine(floor=0.0), Cosine(floor=1.0)]
SCALE = Scale(peak=2e-3, steps=100, d_model=512)


def with_warmup(schedule: Schedule, warmup: float) -> Schedule:
    return from_data(Schedule, {**to_data(schedule), "warmup": warmup})


def curve(schedule: Schedule, scale: Scale = SCALE, last: int = 130) -> list[float]:
    return [schedule.rate(n, scale) for n in range(last + 1)]


@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("schedule", [Constant(), *FALLING], ids=repr)
def test_rises_in_a_line_and_then_never_again(schedule: Schedule, warmup: int) -> None:
    rates = curve(with_warmup(schedule, warmup))
    for n in range(min(warmup, len(rates))):
        assert rates[n] == pytest.approx(SCALE.peak * n / warmup, rel=1e-12)
    if warmup < len(rates):
        assert max(rates) == rates[warmup] == SCALE.peak
    after = rates[warmup:]
    assert all(later <= former for former, later in pairwise(after))


@pytest.mark.parametrize("warmup", [0, 1, 40, 99])
@pytest.mark.parametrize("schedule", FALLING, ids=repr)
def test_ends_at_its_floor_with_the_last_update_and_stays_there(schedule: Any, warmup: int) -> None:
    rates = curve(with_warmup(schedule, warmup))
    for n in (100, 101, 130):
        assert rates[n] == pytest.approx(SCALE.peak * schedule.floor, abs=1e-18)


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_cosine_is_torchs_own(floor: float) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=SCALE.peak)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=90, eta_min=SCALE.peak * floor)
    for n in range(10, 101):
        assert Cosine(warmup=10, floor=floor).rate(n, SCALE) == pytest.approx(
            theirs.get_last_lr()[0], rel=1e-9, abs=1e-15
        )
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("warmup", [1, 100, 4000])
@pytest.mark.parametrize("d_model", [16, 512])
def test_noam_is_the_papers_formula(d_model: int, warmup: int) -> None:
    scale = Scale(peak=1.0, steps=100_000, d_model=d_model)
    for n in (1, 2, 50, 99, 100, 101, 3999, 4000, 4001, 100_000):
        expected = d_model**-0.5 * min(n**-0.5, n * warmup**-1.5)
        assert Noam(warmup=warmup).rate(n, scale) == pytest.approx(expected, rel=1e-12)
    assert Noam(warmup=4000).rate(4000, Scale(1.0, 1, 512)) == pytest.approx(7.0e-4, abs=2e-6)
    assert Noam(warmup=warmup).rate(0, scale) == 0.0


@pytest.mark.parametrize("kind", [Constant, Linear, Cosine, Noam])
def test_a_share_of_the_run_is_so_many_updates(kind: Any) -> None:
    assert kind(warmup=0.25).resolved(80) == kind(warmup=20)
    assert curve(kind(warmup=0.25)) == curve(kind(warmup=25))
    resolved = kind(warmup=0.25).resolved(80)
    assert resolved.resolved(999) == resolved


@pytest.mark.parametrize("data", [{"warmup": -1}, {"warmup": 1.0}, {"warmup": 2.5}, {"floor": 1.5}, {"floor": -0.1}])
def test_refuses_what_means_nothing(data: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(data))):
        from_data(Schedule, {"kind": "cosine", **data})


@pytest.mark.parametrize("schedule", ["cosine", "noam", "linear", "constant"])
@pytest.mark.parametrize(("accumulate", "pause"), [(1, None), (3, None), (2, 1), (2, 4)])
def test_the_nth_update_is_made_at_f_of_n_for_any_accumulation_and_resume(
    schedule: str,
    accumulate: int,
    pause: int | None,
    recipe_of: Callable[..., Recipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Case 18."""
    used: list[float] = []
    real = session.update

    def spy(model: Any, optimizer: torch.optim.Optimizer, *args: Any, **options: Any) -> Any:
        done = real(model, optimizer, *args, **options)
        assert {group["lr"] for group in optimizer.param_groups} == {options["rate"]}
        used.append(options["rate"])
        return done

    monkeypatch.setattr(session, "update", spy)
    changes = {"train.schedule": {"kind": schedule, "warmup": 3}, "train.accumulate": accumulate}
    recipe = recipe_of("causal", changes | {"train.optimizer": "adamw"})
    if pause is not None:
        train(recipe, tmp_path / "run", should_stop=lambda step: step == pause)
    train(recipe, tmp_path / "run", resume="auto")
    f, peak = recipe.train.schedule, 1.0 if schedule == "noam" else 1e-3
    assert used == [f.rate(n, Scale(peak, 7, 16)) for n in range(1, 8)]
    assert used[2] == max(used)
    assert not math.isclose(used[0], 0.0)
