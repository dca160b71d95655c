"""Compiled layers: equal to plain ones for rows of any length, and refused by name where torch can't."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transpect.base.errors import ConfigError
from transpect.core import Tags, Transformer, override, preset
from transpect.train import Recipe, train
from transpect.train.compiled import compile_layers

Make = Callable[..., Recipe]
SMALL = [("vocab_size", 13), ("d_model", 16), ("n_layers", 2), ("n_heads", 2), ("context_length", 32)]
STILL = [("dropout", 0.0), ("attention.dropout", 0.0), ("embedding.dropout", 0.0)]


def model_of(name: str) -> Transformer:
    return Transformer(override(preset(name), [*SMALL, *STILL])).train()


def gradient(model: Transformer, length: int, *, padded: bool) -> tuple[Tensor, dict[str, Tensor]]:
    ids = torch.randint(13, (3, length), generator=torch.Generator().manual_seed(length))
    tags = Tags.padded(torch.arange(length) < torch.tensor([length, 3, 4])[:, None]) if padded else None
    model.zero_grad()
    hidden = model.hidden(ids, tags=tags)
    hidden.square().mean().backward()
    return hidden.detach(), {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2"])
def test_it_is_equal_to_eager_for_every_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
    plain, compiled = model_of(name), compile_layers(model_of(name))
    assert list(plain.state_dict()) == list(compiled.state_dict())
    for length, padded in ((7, False), (9, False), (12, True), (5, True), (6, False)):
        (hidden, wanted), (found, slopes) = (gradient(model, length, padded=padded) for model in (plain, compiled))
        assert torch.allclose(found, hidden, rtol=1e-4, atol=1e-5)
        assert slopes.keys() == wanted.keys()
        for weight, slope in slopes.items():
            assert float((slope - wanted[weight]).norm()) <= 1e-4 * float(wanted[weight].norm()) + 1e-6, weight
    with torch.no_grad():
        ids = torch.zeros(2, 4, dtype=torch.int64)
        assert torch.equal(compiled.eval()(ids), plain.eval()(ids)), "what is not training goes the plain way"


class Unpredictable(nn.Module):
    """Does what no compiler can know."""

    def forward(self, x: Tensor, run: object) -> Tensor:
        torch._dynamo.graph_break()
        return x


def test_a_part_that_can_not_be_compiled_is_refused() -> None:
    model = model_of("gpt2")
    model.get_submodule("towers.decoder.stack.layers.1.steps.ffn.branches.ffn").body = Unpredictable()
    model.get_submodule("towers.decoder.stack.layers.0.steps.ffn.branches.ffn").body = Unpredictable()
    with pytest.raises(ConfigError, match=r"train\.compile needs layers that torch can compile.*self, ffn"):
        compile_layers(model).hidden(torch.zeros(2, 4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"train.activations": "checkpoint"}, "decides by itself what it keeps"),
        ({"data.objective": {"kind": "recurrent", "memory": 4}, "model.positions": "rope"}, "can't serve a memory"),
    ],
)
def test_what_it_can_not_serve_is_refused(changes: dict[str, Any], says: str, recipe_of: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        train(recipe_of("causal", {"train.compile": True, **changes}), tmp_path)
