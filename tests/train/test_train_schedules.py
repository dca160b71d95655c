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
from transpect.train import (
    Constant,
    Cosine,
    InverseSqrt,
    Linear,
    Noam,
    Plateau,
    Recipe,
    Schedule,
    Wsd,
    read_metrics,
    session,
    train,
)
from transpect.train.schedules import Scale, Standstill
from transpect.train.state import read_state

WARMUPS = [0, 1, 7, 40, 100, 250]
FALLING = [
    Linear(),
    Linear(floor=0.3),
    Cosine(),
    Cosine(floor=0.0),
    Cosine(floor=1.0),
]
SCALE = Scale(peak=2e-3, steps=100, d_model=512)


def with_warmup(schedule: Schedule, warmup: float) -> Schedule:
    return from_data(Schedule, {**to_data(schedule), "warmup": warmup})


def curve(schedule: Schedule, scale: Scale = SCALE, last: int = 130) -> list[float]:
    return [schedule.rate(n, scale) for n in range(last + 1)]


@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("schedule", [Constant(), Plateau(), *FALLING], ids=repr)
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


@pytest.mark.parametrize("warmup", [1, 10, 99])
def test_inverse_sqrt_is_noam_with_its_peak_at_the_top(warmup: int) -> None:
    top = Noam(warmup=warmup).rate(warmup, Scale(1.0, 1, 16))
    for n in range(1, 1000, 7):
        ours = InverseSqrt(warmup=warmup).rate(n, Scale(3e-4, 1, 999))
        assert ours == pytest.approx(3e-4 * Noam(warmup=warmup).rate(n, Scale(1.0, 1, 16)) / top, rel=1e-12)


@pytest.mark.parametrize(("shape", "half"), [("linear", 0.5), ("sqrt", 1 - 0.5**0.5), ("cosine", 0.5)])
def test_wsd_stays_at_the_peak_until_its_decay(shape: Any, half: float) -> None:
    rates = curve(Wsd(warmup=10, decay=40, shape=shape, floor=0.2))
    assert rates[10:61] == [SCALE.peak] * 51
    assert rates[80] == pytest.approx(SCALE.peak * (0.2 + 0.8 * half))
    quarter = {"linear": 0.75, "sqrt": 0.5, "cosine": 0.5 + 0.5**1.5}[shape]
    assert rates[70] == pytest.approx(SCALE.peak * (0.2 + 0.8 * quarter))
    assert [rates[n] for n in (100, 101, 130)] == pytest.approx([SCALE.peak * 0.2] * 3)
    assert rates[:10] == pytest.approx([SCALE.peak * n / 10 for n in range(10)])
    assert all(later <= former for former, later in pairwise(rates[10:]))
    assert curve(Wsd(warmup=10, decay=0, shape=shape))[10:101] == [SCALE.peak] * 91


@pytest.mark.parametrize("cooldown", [0, 2])
@pytest.mark.parametrize("patience", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_plateau_falls_when_torchs_own_does(patience: int, cooldown: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=SCALE.peak)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=patience, cooldown=cooldown, threshold=0.01, min_lr=SCALE.peak / 20, eps=0.0
    )
    ours = Plateau(warmup=0, factor=0.5, patience=patience, cooldown=cooldown, threshold=0.01, floor=1 / 20)
    seen, rates = Standstill(), set()
    for number in range(60):
        loss = 3.0 / (1 + number) ** 0.2 + 0.1 * float(torch.randn((), generator=generator))
        theirs.step(loss)
        seen = ours.after(seen, loss)
        rate = ours.rate(5, Scale(SCALE.peak, 100, 16, seen.drops))
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        rates.add(rate)
    assert len(rates) > 2


@pytest.mark.parametrize("kind", [Constant, Linear, Cosine, Noam, InverseSqrt, Wsd, Plateau])
def test_a_share_of_the_run_is_so_many_updates(kind: Any) -> None:
    assert kind(warmup=0.25).resolved(80) == kind(warmup=20).resolved(80)
    assert curve(kind(warmup=0.25)) == curve(kind(warmup=25))
    resolved = kind(warmup=0.25).resolved(80)
    assert resolved.resolved(999) == resolved


def test_what_plateau_has_seen_outlives_a_stop(
    recipe_of: Callable[..., Recipe], tmp_path: Path, assert_same: Any
) -> None:
    """A rate that does harm, so that the valid loss does not fall; evaluated after every update."""
    harmful = {
        "train.optimizer.lr": 1.0,
        "train.schedule": {"kind": "plateau", "warmup": 0, "factor": 0.25, "patience": 0, "cooldown": 1},
        "train.eval_every": 1,
    }
    recipe = recipe_of("causal", harmful)
    train(recipe, tmp_path / "straight")
    for stop in range(1, 7):
        train(recipe, tmp_path / "run", resume="auto", should_stop=lambda step, stop=stop: step == stop)
    train(recipe, tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", tmp_path / "straight")
    lines = read_metrics(tmp_path / "run")
    rates = [line["lr"] for line in lines]
    assert rates[0] == 1.0 and len(set(rates)) > 2
    f, seen = recipe.train.schedule, Standstill()
    assert isinstance(f, Plateau)
    for n, line in enumerate(lines, 1):  # the rate that an update was made at, by the evaluations before it
        assert line["lr"] == f.rate(n, Scale(1.0, 7, 16, seen.drops))
        seen = f.after(seen, line["valid_loss"] or 0.0)
    assert read_state(tmp_path / "run").data["dynamics"]["seen"]["drops"] == seen.drops


def test_plateau_needs_something_to_evaluate_on(recipe_of: Callable[..., Recipe]) -> None:
    with pytest.raises(ConfigError, match="plateau` waits for the valid loss"):
        recipe_of("causal", {"data.valid": None, "train.schedule": "plateau"})


@pytest.mark.parametrize(
    "data", [{"factor": 1.0}, {"factor": 0.0}, {"threshold": 1.0}, {"patience": -1}, {"cooldown": -1}, {"floor": 2.0}]
)
def test_plateau_refuses_what_means_nothing(data: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(data))):
        from_data(Schedule, {"kind": "plateau", **data})


@pytest.mark.parametrize("data", [{"warmup": -1}, {"warmup": 1.0}, {"warmup": 2.5}, {"floor": 1.5}, {"floor": -0.1}])
def test_refuses_what_means_nothing(data: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(data))):
        from_data(Schedule, {"kind": "cosine", **data})


@pytest.mark.parametrize("schedule", ["cosine", "noam", "linear", "constant", "inverse_sqrt", "wsd", "plateau"])
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
