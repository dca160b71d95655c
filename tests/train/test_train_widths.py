"""Models that start by their width: what one update changes is of one size at every width, so one rate suits all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from transpect.base.errors import ConfigError
from transpect.core import Initialization, NormalInit, Transformer, WidthInit, override, preset
from transpect.train import Recipe, TrainSpec
from transpect.train.optimizers import AdamW, Grouping, Lion, Muon, Optimizer
from transpect.train.optimizers.groups import decay_groups
from transpect.train.recipe import DataSpec, ModelSpec, TokenizerSpec

WIDTHS = (32, 64, 128, 256)
BASE = 32
HEAD = 16
WIDE = WidthInit(64)


def model_of(width: int, init: Initialization) -> Transformer:
    shape = [
        ("d_model", width),
        ("n_heads", width // HEAD),
        ("n_layers", 2),
        ("vocab_size", 61),
        ("context_length", 32),
    ]
    return Transformer(replace(override(preset("llama"), [*shape, ("d_ff", 3 * width)]), init=init))


def moved(width: int, init: Initialization, optimizer: Optimizer, rate: float) -> tuple[float, float]:
    """By how much a few updates change what the head reads and the logits: root mean squares."""
    model, ids = model_of(width, init), torch.randint(0, 61, (8, 32), generator=torch.Generator().manual_seed(0))
    opt = optimizer.build(model, Grouping(matrices=init.share(width)))

    @torch.no_grad()
    def read() -> tuple[torch.Tensor, torch.Tensor]:
        return model.hidden(ids), model(ids)

    before = read()
    for _ in range(4):
        for group in opt.param_groups:
            group["lr"] = rate * group["share"]
        opt.zero_grad()
        functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        opt.step()
    hidden, logits = (float((new - old).pow(2).mean().sqrt()) for new, old in zip(read(), before, strict=True))
    return hidden, logits


@pytest.mark.parametrize(
    ("optimizer", "rate"), [(AdamW(), 2e-3), (Lion(weight_decay=0.1), 1e-3)], ids=["adamw", "lion"]
)
def test_updates_change_as_much_at_every_width(optimizer: Optimizer, rate: float) -> None:
    """The coordinate check of Yang et al. 2022, appendix D.1; and without the rule, changes grow with the width."""
    by_width = [moved(width, WidthInit(BASE), optimizer, rate) for width in WIDTHS]
    plain = [moved(width, NormalInit(), optimizer, rate) for width in WIDTHS]
    for changes in zip(*by_width, strict=True):
        assert max(changes) < 1.6 * min(changes), changes
    logits = [change for _, change in plain]
    assert logits == sorted(logits) and logits[-1] > 2.5 * logits[0], logits


def test_at_the_base_width_nothing_is_different() -> None:
    model = model_of(BASE, WidthInit(BASE))
    shares = {group["share"] for group in decay_groups(model, 0.1, Grouping(matrices=WidthInit(BASE).share(BASE)))}
    assert shares == {1.0}


def test_matrices_alone_have_the_share_and_decay_as_before() -> None:
    model = model_of(128, WidthInit(BASE))
    groups = decay_groups(model, 0.1, Grouping(matrices=WidthInit(BASE).share(128)))
    rest = {id(weight) for name, weight in model.named_parameters() if name == "token.weight" or weight.ndim == 1}
    for group in groups:
        a_matrix = not rest & {id(weight) for weight in group["params"]}
        assert group["share"] == (0.25 if a_matrix else 1.0)
        assert group["share"] * group["weight_decay"] == pytest.approx(0.1 if a_matrix else 0.0)


def test_how_weights_start() -> None:
    model = model_of(256, WidthInit(64, std=0.05))
    assert not model.head.project.weight.any()
    assert float(model.token.weight.detach().std()) == pytest.approx(0.05, rel=0.05)
    layer: Any = model.towers["decoder"].stack.layers[0]
    for name, weight in layer.named_parameters():
        if weight.ndim == 2:
            assert float(weight.detach().std()) == pytest.approx(0.05 * (64 / weight.shape[1]) ** 0.5, rel=0.05), name


def recipe(optimizer: Optimizer, init: Initialization = WIDE, **changes: Any) -> Recipe:
    config = override(preset("llama"), changes.items())
    spec = ModelSpec(replace(config, init=init))
    return Recipe(spec, TokenizerSpec("char"), DataSpec("texts.txt"), TrainSpec(10, optimizer=optimizer))


def test_a_recipe_hands_the_share_on_or_is_refused() -> None:
    assert recipe(AdamW(), d_model=256).grouping.matrices == 0.25
    assert recipe(AdamW(), init=NormalInit()).grouping.matrices == 1.0
    with pytest.raises(ConfigError, match="adamw or lion"):
        recipe(Muon())
    with pytest.raises(ConfigError, match=r"head\.tied"):
        recipe(AdamW(), **{"head.tied": True})
