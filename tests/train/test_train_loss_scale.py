"""fp16: the scale follows torch's own rule, changes no update, and an overflow moves nothing but itself."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.core import Transformer, override, preset
from transpect.core.tags import Tags
from transpect.data.batch import Batch
from transpect.train import AdamW, Recipe, Sgd, TrainingError, read_metrics, session, train, update, updates
from transpect.train import loss_scale as module
from transpect.train.cross_entropy import Readout, label_loss, summed_over_logits
from transpect.train.loss_scale import LossScale
from transpect.train.state import read_state

Make = Callable[..., Recipe]
SMALL = [("vocab_size", 13), ("d_model", 16), ("n_layers", 1), ("n_heads", 2), ("d_ff", 24), ("context_length", 16)]

STILL = [("dropout", 0.0), ("attention.dropout", 0.0), ("embedding.dropout", 0.0)]


def batch_of(seed: int, rows: int = 2) -> Batch:
    ids = torch.randint(13, (rows, 8), generator=torch.Generator().manual_seed(seed))
    return Batch(ids[:, :-1].contiguous(), Tags.dense(rows, 7), ids[:, 1:].contiguous())


def model_of() -> Transformer:
    return Transformer(override(preset("gpt2"), [*SMALL, *STILL])).train()


@pytest.mark.parametrize("seed", range(3))
def test_the_factor_is_that_of_torchs_grad_scaler(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWTH_INTERVAL", 3)
    generator = torch.Generator().manual_seed(seed)
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer, ours = torch.optim.SGD([weight], lr=1.0), LossScale(2.0**10)
    skipped = 0
    for _ in range(60):
        good = bool(torch.rand((), generator=generator) < 0.7)
        gradient = torch.randn(4, generator=generator) * ours.factor
        gradient[2] = gradient[2] if good else math.inf
        theirs.scale(torch.zeros(()))
        weight.grad = gradient.clone()
        theirs.unscale_(optimizer)
        before = weight.detach().clone()
        theirs.step(optimizer)
        theirs.update()
        ours.undo([gradient])
        made = ours.allows(gradient.norm())
        skipped += not made
        assert made == good == (not torch.equal(before, weight))
        if good:
            assert torch.equal(before - gradient, weight.detach())
        assert ours.factor == theirs.get_scale()
    assert ours.skipped == skipped > 0


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_scale_changes_no_update(parts: int, clip: float | None) -> None:
    """In float32, where a power of 2 rounds nothing: first all micro-batches, then unscaling, clipping, the step."""
    weights = []
    for scale in (LossScale(1.0), LossScale(2.0**12)):
        model = model_of()
        optimizer = AdamW().build(model)
        for step in range(3):
            batches = [batch_of(10 * step + part) for part in range(parts)]
            done = update(model, optimizer, batches, rate=1e-2, clip=clip, scale=scale)
            assert done.made
        weights.append([weight.detach().clone() for weight in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_small_gradients_survive_in_float16_by_the_scale_alone() -> None:
    """Behind a norm with a gain of 2⁻²² gradients are some 10⁻⁹."""
    moved = {}
    for precision, factor in (("fp32", 1.0), ("fp16", 1.0), ("fp16", 2.0**20)):
        model = model_of()
        weight = model.get_parameter("towers.decoder.stack.layers.0.steps.ffn.branches.ffn.body.up.weight")
        with torch.no_grad():
            model.get_parameter("towers.decoder.stack.final_norm.weight").mul_(2.0**-22)
        before = weight.detach().clone()
        scale = LossScale(factor)
        update(model, Sgd().build(model), [batch_of(0)], rate=2.0**26, precision=precision, scale=scale)
        moved[precision, factor] = weight.detach() - before
    exact = moved["fp32", 1.0]
    assert float((moved["fp16", 2.0**20] - exact).norm()) < 0.02 * float(exact.norm())
    assert float((moved["fp16", 1.0] - exact).norm()) > 0.2 * float(exact.norm())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_small_slopes_of_the_head_survive_by_the_scale(smoothing: float) -> None:
    """The gradient by logits is p − target. Where a model is sure of itself that is some 10⁻⁹, and float16 has no such
    number; what the loss is scaled by must enter before it is rounded."""
    generator = torch.Generator().manual_seed(0)
    n, width, classes = 24, 8, 40
    rows = torch.randn(n, width, generator=generator)
    labels = torch.arange(n) % classes
    weight = torch.randn(classes, width, generator=generator) * 0.01
    bias = torch.zeros(classes)
    count, factor = 24 * 1000, 2.0**30  # labels of the whole update
    found = {}
    for dtype, scale in ((torch.float32, 1.0), (torch.float16, 1.0), (torch.float16, LossScale(factor).over(count))):
        x, w = rows.detach().to(dtype, copy=True).requires_grad_(), weight.clone().requires_grad_()
        readout = Readout(w, bias, None)
        slope = Sure(labels, smoothing)
        with torch.autocast("cpu", torch.float16, enabled=dtype == torch.float16):
            loss = summed_over_logits(x, readout, slope, at_once=7, scale=scale)
        (loss * (factor / count)).backward()
        assert x.grad is not None and w.grad is not None
        found[dtype, scale] = (x.grad.float(), w.grad / (factor / count))
    (_, exact), (_, lost), (_, kept) = found.values()
    assert float((kept - exact).norm()) < 0.01 * float(exact.norm())
    assert float((lost - exact).norm()) > 0.5 * float(exact.norm())


class Sure:
    """A term whose slope is that of a model which is sure: 10⁻⁸ of the usual one."""

    def __init__(self, labels: Tensor, smoothing: float) -> None:
        self._labels, self._smoothing = labels, smoothing

    def __call__(self, logits: Tensor, some: slice, *, slope: Tensor) -> Tensor:
        loss = label_loss(logits, self._labels[some], self._smoothing, slope=slope)
        slope *= 1e-8
        return loss * 1e-8


@pytest.mark.parametrize("count", [1, 7, 4096])
def test_the_gradient_of_the_head_is_made_as_large_as_the_backward_pass_begins(count: int) -> None:
    scale = LossScale(2.0**13)
    assert 1.0 <= scale.factor / count / scale.over(count) < 2.0
    assert math.frexp(scale.over(count))[0] == 0.5  # a power of 2 rounds nothing


def overflow_at(monkeypatch: pytest.MonkeyPatch, calls: Sequence[int]) -> None:
    """Let the backward passes of these numbers, counted over the process, give an infinite gradient."""
    count, real = [0], updates.mean_loss

    def spoiled(*args: Any) -> Tensor:
        loss = real(*args)
        count[0] += 1
        if count[0] in calls:
            loss.register_hook(lambda gradient: gradient * math.inf)
        return loss

    monkeypatch.setattr(updates, "mean_loss", spoiled)


def test_an_overflow_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    optimizer, scale = AdamW().build(model), LossScale()
    update(model, optimizer, [batch_of(0)], rate=1e-2, scale=scale)

    def everything() -> list[Tensor]:
        memory = [value.clone() for state in optimizer.state.values() for value in state.values()]
        return [weight.detach().clone() for weight in model.parameters()] + memory

    before = everything()
    overflow_at(monkeypatch, [2])
    done = update(model, optimizer, [batch_of(1), batch_of(2)], rate=1e-2, clip=1.0, scale=scale)
    assert not done.made
    assert all(torch.equal(a, b) for a, b in zip(before, everything(), strict=True))
    assert all(weight.grad is None for weight in model.parameters())
    assert (scale.factor, scale.streak, scale.skipped) == (2.0**15, 0, 1)
    assert update(model, optimizer, [batch_of(3)], rate=1e-2, scale=scale).made


FP16 = {"train.precision": "fp16", "train.ema": {"decay": 0.5}, "train.max_steps": 5}


def test_a_run_goes_on_as_if_the_batches_that_overflowed_were_not_there(
    recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step of the schedule, none of the average, no line of metrics, no evaluation more than without."""
    recipe = recipe_of("causal", FP16)
    rates: list[tuple[float, bool]] = []
    real = session.update

    def spy(*args: Any, **options: Any) -> Any:
        done = real(*args, **options)
        rates.append((options["rate"], done.made))
        return done

    monkeypatch.setattr(session, "update", spy)
    overflow_at(monkeypatch, [1, 6, 7, 8])  # two micro-batches an update: tries 1, 3 and 4
    train(recipe, tmp_path / "run")
    assert [made for _, made in rates] == [False, True, False, False, True, True, True, True]
    plain = recipe_of("causal", {"train.max_steps": 5, "train.precision": "fp16"})
    expected = [plain.train.schedule.rate(n, session_scale(plain)) for n in range(1, 6)]
    assert [rate for rate, made in rates if made] == expected
    lines = read_metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    assert [line["lr"] for line in lines] == expected
    assert (lines[-1]["loss_scale"], lines[-1]["skipped"]) == (2.0**13, 3)
    state = read_state(tmp_path / "run")
    assert {float(value) for name, value in state.part("optimizer").items() if name.startswith("step/")} == {5.0}


def session_scale(recipe: Recipe) -> Any:
    from transpect.train.schedules import Scale

    assert recipe.train.optimizer.lr is not None
    return Scale(recipe.train.optimizer.lr, recipe.train.max_steps, 16)


@pytest.mark.parametrize("step", [1, 3])
def test_it_resumes_bit_for_bit(
    step: int, recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, assert_same: Any, stop_at: Any
) -> None:
    monkeypatch.setattr(module, "GROWTH_INTERVAL", 2)
    recipe = recipe_of("causal", FP16)
    with monkeypatch.context() as patch:
        overflow_at(patch, [3])
        train(recipe, tmp_path / "straight")
    with monkeypatch.context() as patch:
        overflow_at(patch, [3])
        stop_at(recipe, tmp_path / "run", step)
        if step == 1:  # the overflow lies ahead: two of its passes are behind
            train(recipe, tmp_path / "run", resume="auto")
    if step != 1:
        train(recipe, tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_gradients_that_are_never_finite_end_the_run(
    recipe_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overflow_at(monkeypatch, range(1, 1000))
    with pytest.raises(TrainingError, match=r"finite at some scale.*bf16"):
        train(recipe_of("causal", FP16), tmp_path / "run")


def test_fp16_trains_like_fp32_with_weights_in_float32(recipe_of: Make, tmp_path: Path) -> None:
    last = []
    for precision in ("fp32", "fp16"):
        train(recipe_of("causal", {"train.precision": precision}), tmp_path / precision)
        last.append(read_metrics(tmp_path / precision)[-1]["valid_loss"])
    state = read_state(tmp_path / "fp16")
    assert {t.dtype for name, t in state.tensors.items() if t.is_floating_point()} == {torch.float32}
    assert last[0] != last[1] and last[1] == pytest.approx(last[0], rel=0.01)
