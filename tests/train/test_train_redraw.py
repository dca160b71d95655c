"""Random features are drawn anew in training, as a function of the step: runs that stop go on bit for bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.core import Transformer
from transpect.train import Recipe, train
from transpect.train.state import read_state

PERFORMER = {"kind": "performer", "features": 6, "redraw": 3}


def recipe(recipe_of: Callable[..., Recipe], **kernel: Any) -> Recipe:
    return recipe_of("seq2seq", {"model.kernel": PERFORMER | kernel, "model.attention.dropout": 0.0})


@pytest.mark.parametrize("step", [2, 3, 4, 6])
def test_a_run_that_stops_goes_on_with_the_same_draws(
    step: int,
    recipe_of: Callable[..., Recipe],
    tmp_path: Path,
    assert_same: Callable[[Path, Path], None],
    stop_at: Callable[..., None],
) -> None:
    train(recipe(recipe_of), tmp_path / "straight")
    stop_at(recipe(recipe_of), tmp_path / "run", step)
    train(recipe(recipe_of), tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_the_draw_is_that_of_the_last_update(recipe_of: Callable[..., Recipe], tmp_path: Path) -> None:
    """Seven updates, 0 to 6, so the third draw; without `redraw` the first."""
    for name, every in (("drawn", 3), ("kept", None)):
        train(recipe(recipe_of, redraw=every), tmp_path / name)
        found = read_state(tmp_path / name).part("model")
        model = Transformer(recipe(recipe_of, redraw=every, seed=0).model.config)
        model.redraw(6)
        expected = {key: value for key, value in model.state_dict().items() if key.endswith("omega")}
        assert len(expected) == 3  # an encoder layer, and two branches of a decoder layer
        assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_packed_documents_are_refused_before_anything_is_built(
    recipe_of: Callable[..., Recipe], tmp_path: Path
) -> None:
    changes = {"model.kernel": PERFORMER, "model.attention.dropout": 0.0}
    with pytest.raises(ConfigError, match="adds keys up"):
        train(recipe_of("causal", changes), tmp_path / "run")
