"""Distillation: the formula in float64, whatever the temperature, the share and the sizes; teachers that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from transpect.base.errors import ConfigError
from transpect.core import Transformer, override, preset
from transpect.core.tags import Tags
from transpect.data.batch import IGNORE, Batch
from transpect.train import evaluate, parse_recipe, read_metrics, train
from transpect.train import loss as losses
from transpect.train.criteria import CROSS_ENTROPY, Distillation
from transpect.train.criteria.distillation import TeacherCriterion

V = 13


def model_of(seed: int, vocab_size: int = V, **changes: Any) -> Transformer:
    small = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "context_length": 8, **changes}
    config = override(preset("llama"), {**small, "vocab_size": vocab_size}.items())
    config = override(config, {"init": {"kind": "normal", "std": 0.4}}.items())
    return Transformer(config, seed=seed).double()


def batch_of() -> Batch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(V, (3, 6), generator=generator)
    labels = torch.randint(V, (3, 6), generator=generator)
    return Batch(ids, Tags.dense(3, 6), labels.where(torch.rand(3, 6, generator=generator) < 0.6, IGNORE))


def formula(
    student: Transformer, teacher: Transformer, batch: Batch, t: float, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    own = batch.labels != IGNORE
    z, y = student(batch.ids)[own], teacher(batch.ids)[own][:, :V].detach()
    p, q = (y / t).softmax(-1), (z / t).softmax(-1)
    soft = t**2 * (p * (p / q).log()).sum()
    hard = functional.cross_entropy(z, batch.labels[own], reduction="sum")
    return alpha * soft + (1 - alpha) * hard, soft, hard


@pytest.mark.parametrize("at_once", [None, V * 2])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize("t", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("rows", [V, V + 3])
def test_loss_and_gradient_are_the_formula(
    t: float, alpha: float, rows: int, at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_once is not None:
        monkeypatch.setattr(losses, "LOGITS_AT_ONCE", at_once)
    student, teacher, batch = model_of(1), model_of(2, rows, d_model=24, n_layers=2), batch_of()
    sums = TeacherCriterion(teacher, t, alpha).training(student, batch)
    expected, soft, hard = formula(student, teacher, batch, t, alpha)
    for found, value in ((sums.losses[0], expected), (sums.measures["kl"], soft), (sums.measures["hard_loss"], hard)):
        assert float(found.detach()) == pytest.approx(float(value.detach()), rel=1e-10)
    weights = list(student.parameters())
    for a, b in zip(torch.autograd.grad(sums.losses[0], weights), torch.autograd.grad(expected, weights), strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-11)
    assert not teacher.training and not any(weight.requires_grad for weight in teacher.parameters())


def test_a_teacher_is_its_own_best_pupil_and_evaluation_is_without_it() -> None:
    student, batch = model_of(1), batch_of()
    criterion = TeacherCriterion(model_of(1), 3.0, 1.0)
    sums = criterion.training(student, batch)
    assert float(sums.losses[0].detach()) == pytest.approx(0.0, abs=1e-12)
    assert all(float(g.abs().max()) < 1e-12 for g in torch.autograd.grad(sums.losses[0], list(student.parameters())))
    measured = evaluate(student, [batch], criterion=criterion)
    assert measured.loss == pytest.approx(evaluate(student, [batch], criterion=CROSS_ENTROPY).loss, rel=1e-12)
    assert measured.measures["kl"] == pytest.approx(0.0, abs=1e-12)


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Any]:
    lines = ["the cat eats fish", "a dog runs home", "birds sing at dawn", "the fish swims", "rain falls on hills"] * 3
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))

    def make(**changes: Any) -> Any:
        plain = {
            "model": {"preset": "llama", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "context_length": 24},
            "tokenizer": "char",
            "data": {"train": {"kind": "jsonl", "path": str(tmp_path / "x.jsonl")}, "valid": 0.2},
            "train": {"max_steps": 4, "batch_size": 3, "eval_every": 2, "save_every": 2, "log_every": 1, "threads": 1},
            "logging": {"tensorboard": False, "progress": "none"},
        }
        return parse_recipe(plain, changes.items())

    return make


def test_a_student_of_another_family_learns_and_resumes(
    recipe: Callable[..., Any], tmp_path: Path, assert_same: Callable[[Path, Path], None]
) -> None:
    train(recipe(**{"model.d_model": 32, "train.max_steps": 2}), tmp_path / "teacher")
    best = str(tmp_path / "teacher" / "best")
    changes = {
        "model.preset": "gpt2",
        "tokenizer": None,
        "tokenizer.kind": None,
        "tokenizer.path": best,
        "train.loss.kind": "distillation",
        "train.loss.teacher": best,
    }
    del changes["tokenizer"]
    made = recipe(**{**changes, "model.d_ff": 32})
    assert isinstance(made.train.loss, Distillation)
    train(made, tmp_path / "whole")
    last = read_metrics(tmp_path / "whole")[-1]
    assert {"kl", "hard_loss", "valid_kl", "valid_perplexity"} <= last.keys()
    assert last["loss"] == pytest.approx(0.5 * last["kl"] + 0.5 * last["hard_loss"], rel=1e-5)
    train(made, tmp_path / "parts", should_stop=lambda step: step == 3)
    train(made, tmp_path / "parts", resume="auto")
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_teachers_that_do_not_fit(recipe: Callable[..., Any], tmp_path: Path) -> None:
    train(recipe(**{"train.max_steps": 1}), tmp_path / "teacher")
    loss = {"train.loss.kind": "distillation", "train.loss.teacher": str(tmp_path / "teacher" / "best")}
    own = {"tokenizer.kind": None, "tokenizer.path": str(tmp_path / "teacher" / "best")}
    for changes, said in (
        ({"tokenizer.kind": "byte-bpe", "tokenizer.vocab_size": 300}, "the same vocabulary"),
        ({**own, "model.context_length": 32}, "the teacher must fit the run: seq_len"),
        ({**own, "model.vocab_size": 99}, "must know all 99 ids"),
        ({**own, "train.label_smoothing": 0.1}, "smooths labels itself"),
    ):
        with pytest.raises(ConfigError, match=said):
            train(recipe(**loss, **changes), tmp_path / "run")
    with pytest.raises(ConfigError, match="must be above 0"):
        recipe(**loss, **{"train.loss.temperature": 0.0})
