"""Training LoRA and DoRA: the base stays bit for bit, only adapters cost memory, and a run stops and goes on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from transpect.adapters import Dora, Lora, adapters_of, attach, full_state, train_only
from transpect.base.errors import ConfigError
from transpect.core import ModelConfig, Transformer, override, preset
from transpect.interop import load_model, save_model
from transpect.lm import load
from transpect.text import Tokenizer, train_tokenizer
from transpect.train import Recipe, load_recipe, parse_recipe, train
from transpect.train.job import build
from transpect.train.loss import accumulate_gradient
from transpect.train.state import read_state

SMALL = {"d_model": 16, "context_length": 24, "n_layers": 2, "n_heads": 2, "d_ff": 24}
ADAPTERS: dict[str, dict[str, Any]] = {
    "lora": {"rank": 2, "alpha": 4, "dropout": 0.1},
    "dora": {"kind": "dora", "rank": 2, "alpha": 4, "rslora": True, "targets": ["query", "value", "layers.1"]},
    "tokens": {"rank": 2, "modules_to_save": ["token"], "targets": ["query"]},
}


def small(name: str, vocab_size: int) -> ModelConfig:
    return override(preset(name), [*SMALL.items(), ("vocab_size", vocab_size)])


@pytest.fixture(scope="module")
def tokenizer(corpora: dict[str, Path]) -> Tokenizer:
    return train_tokenizer("char", [corpora["causal"].read_text("utf-8")])


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    place = tmp_path_factory.mktemp("origin") / "gpt2"
    save_model(Transformer(small("gpt2", len(tokenizer)), seed=3), place)
    tokenizer.save(place)
    return place


@pytest.fixture(scope="module")
def begun(origin: Path, plain: Callable[..., dict[str, Any]]) -> Callable[..., Recipe]:
    def make(adapter: str, **sections: Any) -> Recipe:
        data = {**plain("causal"), "model": {"path": str(origin)}, **sections}
        data["train"] = {**data["train"], "adapter": ADAPTERS[adapter]}
        data["tokenizer"] = sections.get("tokenizer", {})
        return parse_recipe(data)

    return make


@pytest.mark.parametrize(
    "adapter", ["lora", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("dora", "tokens"))]
)
def test_a_run_trains_adapters_alone_and_goes_on_bit_for_bit(
    adapter: str, origin: Path, begun: Callable[..., Recipe], tmp_path: Path, stop_at: Any
) -> None:
    recipe = begun(adapter)
    train(recipe, tmp_path / "straight")
    stop_at(recipe, tmp_path / "run", 3)
    train(load_recipe(tmp_path / "run/recipe.yaml"), tmp_path / "run", resume="auto")
    one, other = (read_state(tmp_path / name) for name in ("straight", "run"))
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())

    before, after = load_model(origin).state_dict(), one.part("model")
    base = [name if name in after else name[: name.rindex(".")] + ".base" + name[name.rindex(".") :] for name in before]
    moved = {name for name, now in zip(before, base, strict=True) if not torch.equal(after[now], before[name])}
    assert moved == ({"token.weight"} if adapter == "tokens" else set())
    remembered = {name.partition("/")[2] for name in one.part("optimizer")}
    assert remembered == {name for name in after if ".a." in name or ".b." in name or "magnitude" in name} | moved
    for name in ("best", "last"):
        files = [load_file(tmp_path / run / name / "adapter_model.safetensors") for run in ("straight", "run")]
        assert all(torch.equal(tensor, files[1][key]) for key, tensor in files[0].items())
        assert not (tmp_path / "run" / name / "model.safetensors").exists()


def test_what_a_run_leaves_is_opened_with_its_model(origin: Path, begun: Callable[..., Recipe], tmp_path: Path) -> None:
    """Merged, by the run's name or beside the base's, and the same as the weights in training."""
    recipe = begun("tokens", tokenizer={"add_tokens": ["cat", "fish"]})
    recipe = replace(recipe, data=replace(recipe.data, valid=None))
    train(recipe, tmp_path / "run")
    job = build(recipe)
    job.model.load_state_dict(read_state(tmp_path / "run").part("model"))
    lm = load(tmp_path / "run", device="cpu")
    assert lm.tokenizer.token_to_id("fish") == len(lm.tokenizer) - 1
    state = full_state(job.model)
    assert all(torch.equal(tensor, state[name]) for name, tensor in lm.model.state_dict().items())
    recipe = begun("lora")
    train(recipe, tmp_path / "plain")
    ids = torch.arange(8)[None]
    one, other = load(tmp_path / "plain", device="cpu"), load(origin, device="cpu", adapter=tmp_path / "plain")
    assert torch.equal(one.model(ids), other.model(ids))
    assert not torch.equal(one.model(ids), load(origin, device="cpu").model(ids))


@pytest.mark.parametrize("options", [Lora(rank=3, alpha=4.0), Dora(rank=3, alpha=4.0)], ids=["lora", "dora"])
def test_an_adapter_begins_as_nothing_and_its_gradient_is_that_of_the_merged_weight(
    options: Lora | Dora, tokenizer: Tokenizer
) -> None:
    """dL/dA = s Bᵀ dL/dW', dL/dB = s dL/dW' Aᵀ; of DoRA dL/dm = (dL/dW' ⊙ V/‖V‖) summed by rows."""
    plain = Transformer(small("gpt2", 20), seed=0).double().eval()
    model = attach(Transformer(small("gpt2", 20), seed=0).double().eval(), options, seed=1)
    ids = torch.arange(12).view(2, 6)
    torch.testing.assert_close(model(ids), plain(ids), rtol=1e-12, atol=1e-12)
    train_only(model, options)
    with torch.no_grad():
        for adapter in adapters_of(model).values():
            adapter.b.weight.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(2))
    plain.load_state_dict(full_state(model))
    torch.testing.assert_close(model(ids), plain(ids), rtol=1e-10, atol=1e-10)
    for each in (model, plain):
        each(ids).square().sum().backward()
    for name, adapter in adapters_of(model).items():
        slope = plain.get_parameter(f"{name}.weight").grad
        assert slope is not None and adapter.base.weight.grad is None
        if isinstance(options, Dora):
            turned = (adapter.base_weight() + adapter.change()).detach()
            norm = turned.norm(dim=1)
            torch.testing.assert_close(adapter.magnitude.grad, (slope * turned).sum(1) / norm)
            slope = slope * (adapter.magnitude / norm)[:, None].detach()
        torch.testing.assert_close(adapter.a.weight.grad, options.scale * adapter.b.weight.T @ slope)
        torch.testing.assert_close(adapter.b.weight.grad, options.scale * slope @ adapter.a.weight.T)


def test_what_is_kept_less_of_in_training_reads_adapters_too(begun: Callable[..., Recipe]) -> None:
    """A model in training computes feed-forwards in another way, which must not pass an adapter over."""
    job = build(begun("lora"))
    for adapter in adapters_of(job.model).values():
        torch.nn.init.normal_(adapter.b.weight)
    batch = next(iter(job.batches))
    accumulate_gradient(job.model.eval(), batch, n_labels=batch.n_labels)
    layers = adapters_of(job.model)
    assert any("down" in name for name in layers)
    assert all(float(layer.a.weight.grad.abs().max()) > 0 for layer in layers.values())
    assert all(
        not weight.requires_grad
        for name, weight in job.model.named_parameters()
        if ".a." not in name and ".b." not in name
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"targets": ["queri"]}, "Did you mean 'query'"),
        ({"targets": ["token"]}, "no linear layer"),
        ({"modules_to_save": ["tokem"]}, "Did you mean 'token'"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_refuses_by_name(
    changes: dict[str, Any], words: str, origin: Path, plain: Callable[..., dict[str, Any]]
) -> None:
    data = {**plain("causal"), "model": {"path": str(origin)}}
    data["train"] = {**data["train"], "adapter": changes}
    with pytest.raises(ConfigError, match=words):
        build(parse_recipe(data))


def test_refuses_an_adapter_of_nothing_and_beside_frozen_parts(begun: Callable[..., Recipe], recipe_of: Any) -> None:
    with pytest.raises(ConfigError, match=r"model\.path"):
        build(recipe_of("causal", {"train.adapter": "lora"}))
    with pytest.raises(ConfigError, match="already freezes"):
        recipe_of("causal", {"train.adapter": "lora", "train.freeze": ["token"]})
    job = build(begun("lora"))
    with pytest.raises(ConfigError, match="one adapter at a time"):
        attach(job.model, Lora(), seed=0)
