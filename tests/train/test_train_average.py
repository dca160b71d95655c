"""The average of weights: its formula, that it is what is evaluated and saved, and that it resumes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.interop import load_model
from transpect.text import load_tokenizer
from transpect.train import Ema, Recipe, evaluate_documents, read_metrics, session, train
from transpect.train.average import Average
from transpect.train.material import documents
from transpect.train.state import read_state

Make = Callable[..., Recipe]
KEPT = {"train.ema": {"decay": 0.6}}


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.9])
def test_it_is_its_formula(decay: float) -> None:
    layer = torch.nn.Linear(3, 2).double()
    layer.bias.requires_grad_(False)
    average = Average(layer, Ema(decay))
    expected = layer.weight.detach().clone()
    for n in range(1, 20):
        with torch.no_grad():
            layer.weight.add_(float(n))
        average.take(n)
        d = min(decay, (1 + n) / (10 + n))
        expected = d * expected + (1 - d) * layer.weight.detach()
    assert average.tensors().keys() == {"weight"}
    assert torch.allclose(average.tensors()["weight"], expected, rtol=0.0, atol=1e-12)
    before = layer.weight.detach().clone()
    with average.in_place():
        assert torch.allclose(layer.weight, expected, rtol=0.0, atol=1e-12)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("evaluate", [True, False])
def test_it_stands_beside_and_is_evaluated_where_asked(evaluate: bool, recipe_of: Make, tmp_path: Path) -> None:
    recipe = recipe_of("causal", {"train.ema": {"decay": 0.6, "evaluate": evaluate}, "data.valid_seed": 3})
    train(recipe, tmp_path / "run")
    train(recipe_of("causal", {"data.valid_seed": 3}), tmp_path / "plain")
    state, plain = read_state(tmp_path / "run"), read_state(tmp_path / "plain")
    assert all(torch.equal(value, plain.tensors[name]) for name, value in state.tensors.items() if "ema/" not in name)
    last, ema = (load_model(tmp_path / "run" / name) for name in ("last", "ema"))
    for name, weight in state.part("ema").items():
        assert torch.equal(ema.get_parameter(name), weight)
        assert torch.equal(last.get_parameter(name), state.tensors[f"model/{name}"])
    _, valid = documents(recipe)
    assert valid is not None
    final = read_metrics(tmp_path / "run")[-1]["valid_loss"]
    for model, said in ((ema, evaluate), (last, not evaluate)):
        found = evaluate_documents(model, load_tokenizer(tmp_path / "run" / "ema"), valid)
        assert (found.loss == pytest.approx(final, rel=1e-5)) == said


@pytest.mark.parametrize("step", [1, 4])
def test_it_goes_on_bit_for_bit(step: int, recipe_of: Make, tmp_path: Path, assert_same: Any, stop_at: Any) -> None:
    train(recipe_of("causal", KEPT), tmp_path / "straight")
    stop_at(recipe_of("causal", KEPT), tmp_path / "run", step)
    train(recipe_of("causal", KEPT), tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_it_may_begin_on_the_way(recipe_of: Make, tmp_path: Path, stop_at: Any) -> None:
    stop_at(recipe_of("causal"), tmp_path / "run", 6)
    weights = read_state(tmp_path / "run").part("model")
    train(recipe_of("causal", KEPT), tmp_path / "run", resume="auto")
    state = read_state(tmp_path / "run")
    d = min(0.6, 8 / 17)
    for name, mean in state.part("ema").items():
        expected = d * weights[name] + (1 - d) * state.tensors[f"model/{name}"]
        assert torch.allclose(mean, expected, rtol=0.0, atol=1e-6), name


def test_a_failed_evaluation_leaves_the_weights(recipe_of: Make, tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[Any] = []

    def fails(model: Any, *_: object, **__: object) -> None:
        seen.append(model)
        raise RuntimeError("no")

    monkeypatch.setattr(session, "evaluate_pass", fails)
    with pytest.raises(RuntimeError, match="no"):
        train(recipe_of("causal", {**KEPT, "train.eval_every": 2, "train.save_every": 2}), tmp_path / "run")
    monkeypatch.undo()
    plain = {"train.eval_every": 2, "train.save_every": 2}
    train(recipe_of("causal", plain), tmp_path / "plain", should_stop=lambda step: step == 2)
    weights = read_state(tmp_path / "plain").part("model")
    assert all(torch.equal(weight, weights[name]) for name, weight in seen[0].state_dict().items())


@pytest.mark.parametrize("decay", [1.0, -0.1])
def test_a_decay_that_means_nothing_is_refused(decay: float, recipe_of: Make) -> None:
    with pytest.raises(ConfigError, match=r"decay must be at least 0"):
        recipe_of("causal", {"train.ema": {"decay": decay}})
