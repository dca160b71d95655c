"""A run that begins with a checkpoint: the same function at first, its tokenizer, its family in what is saved."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transpect.base.errors import CheckpointError, ConfigError
from transpect.core import ModelConfig, Transformer, override, preset
from transpect.interop import load_config, load_model, save_model
from transpect.text import Tokenizer, load_tokenizer, train_tokenizer
from transpect.train import dump_recipe, load_recipe, parse_recipe, train
from transpect.train.job import build
from transpect.train.model.initial import fitted

FAMILIES = ("gpt2", "llama", "bert-base", "t5-small")
SMALL = {"vocab_size": 40, "d_model": 16, "context_length": 24, "n_layers": 2, "n_heads": 2}
SIZES: dict[str, dict[str, Any]] = {
    "llama": {"n_kv_heads": 1, "d_ff": 24},
    "t5-small": {"head_dim": 8, "d_ff": 24},
    "gpt2": {},
    "bert-base": {"d_ff": 24},
}
SIDE = {"gpt2": "causal", "llama": "causal", "bert-base": "masked", "t5-small": "seq2seq"}

Plain = Callable[..., dict[str, Any]]


def small(name: str, **changes: Any) -> ModelConfig:
    return override(preset(name), [*SMALL.items(), *SIZES[name].items(), *changes.items()])


@pytest.fixture(scope="module")
def tokenizer(corpora: dict[str, Path]) -> Tokenizer:
    texts = [file.read_text("utf-8") for file in corpora.values()]
    special = {"mask": "<mask>", "cls": "<cls>", "sep": "<sep>"}
    return train_tokenizer("char", texts, special_tokens=special)


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, Path]:
    """A checkpoint of each family."""
    places = {}
    for name in FAMILIES:
        places[name] = tmp_path_factory.mktemp("origins") / name
        model = Transformer(small(name), seed=3)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)), alpha=0.02)
        save_model(model, places[name], generation={"temperature": 0.7, "eos_token_id": [1, 2]})
        tokenizer.save(places[name])
    return places


def started(plain: Plain, place: Path, family: str, **changes: Any) -> dict[str, Any]:
    """A recipe that begins with a checkpoint, as plain data."""
    data = plain(SIDE[family])
    del data["tokenizer"]
    return {**data, "model": {"path": str(place), **changes}}


@pytest.mark.parametrize("family", ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES[1:])])
def test_begins_as_the_checkpoint_and_is_saved_as_its_family(
    family: str, origins: dict[str, Path], plain: Plain, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    data = started(plain, origins[family], family, dropout=0.3)
    data["train"] |= {"max_steps": 1, "schedule": {"kind": "constant"}}
    job = build(parse_recipe(data))
    state = load_model(origins[family]).state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in job.model.state_dict().items())
    assert all(tensor.is_contiguous() for tensor in job.model.state_dict().values())
    assert job.config.last.dropout == 0.3
    train(parse_recipe(data), tmp_path / "run")
    before, after = (
        json.loads((place / "config.json").read_text()) for place in (origins[family], tmp_path / "run/last")
    )
    assert after["architectures"] == before["architectures"]
    assert load_config(tmp_path / "run").family == before["model_type"]
    moved = load_model(tmp_path / "run/last").state_dict()
    assert any(not torch.equal(moved[name], state[name]) for name in state)
    assert load_tokenizer(tmp_path / "run").backend.get_vocab() == tokenizer.backend.get_vocab()
    assert json.loads((tmp_path / "run/last/generation_config.json").read_text())["temperature"] == 0.7


@pytest.mark.parametrize("family", ["gpt2", pytest.param("bert-base", marks=pytest.mark.slow)])
def test_resumes_bit_for_bit_without_its_checkpoint(
    family: str, origins: dict[str, Path], plain: Plain, tmp_path: Path, assert_same: Any, stop_at: Any
) -> None:
    """GPT-2's matrices lie transposed in the file, and products by strides add in another order."""
    moving = tmp_path / "origin"
    save_model(load_model(origins[family]), moving)
    load_tokenizer(origins[family]).save(moving)
    recipe = parse_recipe(started(plain, moving, family, dropout=0.1))
    train(recipe, tmp_path / "straight")
    stop_at(recipe, tmp_path / "run", 3)
    moving.rename(tmp_path / "gone")
    train(load_recipe(tmp_path / "run/recipe.yaml"), tmp_path / "run", resume="auto")
    assert_same(tmp_path / "run", tmp_path / "straight")


def test_a_resolved_recipe_is_the_same_recipe(origins: dict[str, Path], plain: Plain, tmp_path: Path) -> None:
    recipe = parse_recipe(started(plain, origins["llama"], "llama", **{"attention.dropout": 0.2}))
    resolved = recipe.resolve(load_tokenizer(origins["llama"]))
    (tmp_path / "r.yaml").write_text(dump_recipe(resolved), encoding="utf-8")
    assert load_recipe(tmp_path / "r.yaml") == resolved
    assert resolved.model.path == str(origins["llama"])
    assert resolved.tokenizer.path == str(origins["llama"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("d_model", 32), ("n_layers", 3), ("n_kv_heads", 2), ("decoder.attention.qkv_bias", True), ("vocab_size", 39)],
)
def test_refuses_what_changes_a_tensor_by_its_name(
    key: str, value: Any, origins: dict[str, Path], plain: Plain, tmp_path: Path
) -> None:
    data = started(plain, origins["llama"], "llama", dropout=0.0)
    with pytest.raises(ConfigError, match=f"another {key}") as caught:
        parse_recipe(data, [(f"model.{key}", value)])
    assert caught.value.file == f"option --model.{key}"


def test_refuses_a_checkpoint_beside_a_preset_and_one_that_is_not_there(plain: Plain, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not both"):
        parse_recipe({**plain("causal"), "model": {"path": str(tmp_path), "preset": "gpt2"}})
    with pytest.raises(CheckpointError):
        parse_recipe({**plain("causal"), "model": {"path": str(tmp_path / "nothing")}})


# new heads


HEADS: dict[str, dict[str, Any]] = {
    "sequence": {"kind": "sequence_class", "n_classes": 5},
    "token": {"kind": "token_class", "n_classes": 5},
    "masked": {"kind": "masked_lm"},
    "pooled": {"kind": "pooled"},
}
ARCHITECTURES = {
    ("gpt2", "sequence"): "GPT2ForSequenceClassification",
    ("gpt2", "token"): "GPT2ForTokenClassification",
    ("llama", "sequence"): "LlamaForSequenceClassification",
    ("llama", "pooled"): "LlamaModel",
    ("bert-base", "sequence"): "BertForSequenceClassification",
    ("bert-base", "token"): "BertForTokenClassification",
    ("bert-base", "pooled"): "BertModel",
}


@pytest.mark.parametrize(("family", "head"), ARCHITECTURES)
def test_a_new_head_is_that_of_the_family_over_the_old_body(
    family: str, head: str, origins: dict[str, Path], plain: Plain, tmp_path: Path
) -> None:
    config = parse_recipe(started(plain, origins[family], family, head=HEADS[head])).model.config
    origin = load_model(origins[family])
    model, new = fitted(origin, config, seed=0)
    assert new == [name for name in model.state_dict() if name.startswith("head.")]
    ids = torch.arange(6)[None]
    assert torch.equal(model.eval().hidden(ids), origin.hidden(ids))
    save_model(model, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["architectures"] == [ARCHITECTURES[family, head]]
    again = load_model(tmp_path / "out").state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in model.state_dict().items())


def test_a_masked_head_on_a_base_begins_with_its_table_and_keeps_no_pooler(origins: dict[str, Path]) -> None:
    base, _ = fitted(load_model(origins["bert-base"]), small("bert-base", head={"kind": "pooled"}), 0)
    model, new = fitted(base, small("bert-base"), seed=0)
    assert set(new) == {name for name in model.state_dict() if name.startswith("head.")}
    untied = small("bert-base", **{"head.tied": False})
    assert torch.equal(fitted(base, untied, 0)[0].state_dict()["head.project.weight"], base.token.weight)


def test_a_pooler_goes_over_to_a_classifier_and_its_classes_do_not() -> None:
    base = Transformer(small("bert-base", head={"kind": "pooled", "transform": {}}), seed=1)
    two = small("bert-base", head={"kind": "sequence_class", "n_classes": 2})
    model, new = fitted(base, two, seed=0)
    assert new == ["head.project.weight", "head.project.bias"]
    three = small("bert-base", head={"kind": "sequence_class", "n_classes": 3})
    assert fitted(model, three, seed=0)[1] == new
    assert fitted(model, two, seed=0)[1] == []


def test_a_head_of_its_own_is_not_lost_in_silence() -> None:
    with pytest.raises(ConfigError, match=r"head\.project\.weight"):
        fitted(Transformer(small("llama"), seed=0), small("llama", **{"head.tied": True}), 0)


def test_drawn_heads_are_by_seed(origins: dict[str, Path]) -> None:
    origin, config = load_model(origins["gpt2"]), small("gpt2", head=HEADS["token"])

    def weight(seed: int) -> Tensor:
        return fitted(origin, config, seed)[0].state_dict()["head.project.weight"]

    assert torch.equal(weight(1), weight(1))
    assert not torch.equal(weight(1), weight(2))
