"""What is frozen stays bit for bit, costs no optimizer memory, and is named by patterns that must fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.core import Transformer, override, preset
from transpect.train import Recipe, train
from transpect.train.job import build
from transpect.train.loss import accumulate_gradient
from transpect.train.model.freezing import chosen, freeze
from transpect.train.state import read_state

LAYER = "towers.decoder.stack.layers.2.steps"


def model(name: str = "gpt2", **changes: Any) -> Transformer:
    sizes = {"vocab_size": 20, "d_model": 16, "context_length": 24, "n_layers": 3, "n_heads": 2, "d_ff": 24}
    return Transformer(override(preset(name), [*sizes.items(), *changes.items()]), seed=0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt2", {"token.weight", "towers.decoder.stack.positions.table.weight"}),
        ("llama", {"token.weight"}),
        ("t5-small", {"token.weight"}),  # its buckets are of attention
    ],
)
def test_embedding_is_what_is_added_before_the_first_layer(name: str, expected: set[str]) -> None:
    built = model(name)
    assert chosen(built, dict(built.named_parameters()), ["embedding"]) == expected


def test_the_last_pattern_that_fits_counts() -> None:
    built = model()
    names = dict(built.named_parameters())
    without = chosen(built, names, ["*", "!layers.2"])
    assert {name for name in names if name not in without} == {name for name in names if ".layers.2." in name}
    assert chosen(built, names, ["*", "!layers.2", "query"]) - without == {
        f"{LAYER}.self.branches.self.body.query.{part}" for part in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (["xembedding"], "Did you mean 'embedding'"),
        (["layers.7"], "Names look like"),
        (["layer.0"], "Did you mean 'layers'"),
        (["query", "!valuee"], "Did you mean 'value'"),
        (["*"], "something to be trained"),
        (["token", "towers"], "something to be trained"),  # the head is tied
    ],
)
def test_refuses_what_fits_nothing_or_leaves_nothing(patterns: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        freeze(model(), patterns)


@pytest.mark.parametrize(
    ("objective", "patterns"),
    [
        ("causal", ["embedding", "layers.0"]),
        pytest.param("masked", ["down", "head"], marks=pytest.mark.slow),
        pytest.param("causal", ["*", "!final_norm"], marks=pytest.mark.slow),
        pytest.param("masked", ["*", "!layers.1"], marks=pytest.mark.slow),
    ],
)
def test_frozen_weights_stay_and_the_others_move(
    patterns: list[str],
    objective: str,
    recipe_of: Callable[..., Recipe],
    tmp_path: Path,
    assert_same: Any,
    stop_at: Any,
) -> None:
    """And a run with frozen parts that stops goes on bit for bit."""
    recipe = recipe_of(objective, {"train.freeze": patterns, "model.n_layers": 2})
    stop_at(recipe, tmp_path / "run", 0)
    before = read_state(tmp_path / "run").part("model")
    train(recipe, tmp_path / "run", resume="auto")
    after = read_state(tmp_path / "run")
    weights = after.part("model")
    blank = Transformer(recipe.model.build(len(before["token.weight"])), seed=None)
    frozen = chosen(blank, dict(blank.named_parameters()), recipe.train.freeze)
    assert frozen
    assert {name for name, weight in before.items() if torch.equal(weight, weights[name])} == frozen
    remembered = {name.partition("/")[2] for name in after.part("optimizer")}
    assert remembered == before.keys() - frozen
    train(recipe, tmp_path / "straight")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_gradients_of_the_others_are_those_of_a_whole_training(recipe_of: Callable[..., Recipe]) -> None:
    found = []
    for patterns in ([], ["embedding", "layers.0-1", "up"]):
        job = build(recipe_of("causal", {"train.freeze": patterns, "model.n_layers": 3, "model.dropout": 0.0}))
        torch.manual_seed(0)
        batch = next(iter(job.batches))
        accumulate_gradient(job.model.eval(), batch, n_labels=batch.n_labels)
        found.append({name: weight.grad for name, weight in job.model.named_parameters()})
    whole, part = found
    assert {name for name, grad in part.items() if grad is None} < whole.keys()
    assert all(grad is None or torch.equal(grad, whole[name]) for name, grad in part.items())
    assert any(grad is None for grad in part.values())


def test_a_run_keeps_what_it_freezes(recipe_of: Callable[..., Recipe], tmp_path: Path, stop_at: Any) -> None:
    stop_at(recipe_of("causal", {"train.freeze": ["embedding"]}), tmp_path / "run", 2)
    with pytest.raises(ConfigError, match=r"train\.freeze"):
        train(recipe_of("causal"), tmp_path / "run", resume="auto")
