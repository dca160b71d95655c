"""Adapters against PEFT on models of `transformers`: ours opens there, theirs opens here, logits are equal."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from transpect.adapters import Adapter, Dora, Lora, adapters_of, attach, full_state
from transpect.base.errors import CheckpointError
from transpect.core import PRESETS, ModelConfig, Transformer, override, preset
from transpect.interop import load_model, save_model
from transpect.interop.convert import convert
from transpect.interop.families import FAMILIES
from transpect.interop.peft.opening import merged
from transpect.interop.peft.reading import read_adapter
from transpect.interop.peft.writing import check_adapter, write_adapter

IDS = torch.arange(2, 22).view(2, 10) % 37
SIZES: dict[str, Any] = {"vocab_size": 40, "d_model": 24, "context_length": 32, "n_layers": 2, "n_heads": 4, "d_ff": 40}
CLASSES = {"head": {"kind": "sequence_class", "n_classes": 3, "pool": "first", "transform": {}}}
MODELS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "llama": ("llama", {"n_kv_heads": 2}, AutoModelForCausalLM),
    "gpt2": ("gpt2", {}, AutoModelForCausalLM),
    "bert": ("bert-base", {}, AutoModelForMaskedLM),
    "bert-classes": ("bert-base", CLASSES, AutoModelForSequenceClassification),
    "t5": ("t5-small", {"head_dim": 6}, AutoModelForSeq2SeqLM),
    "phi3": ("llama", {"n_kv_heads": 2, "family": "phi3"}, AutoModelForCausalLM),
    "neox": ("gpt_neox", {"d_model": 32}, AutoModelForCausalLM),
}
FUSED = {"gpt2": ["c_attn", "c_fc"], "phi3": ["qkv_proj", "gate_up_proj", "o_proj"], "neox": ["query_key_value"]}
KINDS: dict[str, Adapter] = {
    "lora": Lora(rank=3, alpha=7.0),
    "rslora": Lora(rank=4, alpha=3.0, rslora=True),
    "dora": Dora(rank=2, alpha=5.0),
    "some": Lora(rank=2, alpha=4.0, targets=("query", "value", "layers.1.down")),
}


def sampled(grid: list[tuple[str, ...]], fast: set[tuple[str, ...]]) -> list[Any]:
    """A grid of which a few cases are run every time, and the others with the slow tests."""
    return [case if case in fast else pytest.param(*case, marks=pytest.mark.slow) for case in grid]


WRITTEN = sampled(
    list(product(MODELS, KINDS)),
    {("gpt2", "lora"), ("llama", "rslora"), ("phi3", "dora"), ("bert-classes", "lora"), ("neox", "some")},
)
READ = sampled(
    list(product(MODELS, ("lora", "dora"))),
    {("gpt2", "dora"), ("bert-classes", "lora"), ("neox", "lora"), ("t5", "lora")},
)


def config_of(name: str) -> ModelConfig:
    family, changes, _ = MODELS[name]
    return small(family, **changes)


def small(family: str, /, **changes: Any) -> ModelConfig:
    config = preset(family) if family in PRESETS else FAMILIES[family].template
    sizes = {**SIZES, **changes}
    return override(config, [(key, value) for key, value in sizes.items() if value is not None])


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    places = {}
    for name in MODELS:
        places[name] = tmp_path_factory.mktemp("origins") / name
        model = Transformer(config_of(name), seed=4)
        shaken(model, 0.1)
        save_model(model, places[name])
        assert json.loads((places[name] / "config.json").read_text())["model_type"] == {"neox": "gpt_neox"}.get(
            name, name.partition("-")[0]
        )
    return places


@torch.no_grad()
def shaken(model: torch.nn.Module, by: float, words: str = "") -> None:
    """Weights that are far from how they begin: B is not zero, a magnitude is not a norm."""
    generator = torch.Generator().manual_seed(9)
    for name, weight in model.named_parameters():
        if words in name:
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=by)


def ours(model: Transformer) -> Tensor:
    with torch.no_grad():
        if model.config.kind == "encoder-decoder":
            return model(IDS, source=model.encode(IDS))
        return model(IDS)


def theirs(model: Any) -> Tensor:
    with torch.no_grad():
        kinds = {"decoder_input_ids": IDS} if model.config.is_encoder_decoder else {}
        return model(input_ids=IDS, **kinds).logits


def adapted(place: Path, options: Adapter) -> Transformer:
    model = attach(load_model(place), options, seed=1).eval()
    for name in adapters_of(model):
        shaken(model.get_submodule(name).b, 0.3)
        shaken(model.get_submodule(name), 0.3, "magnitude")
    return model


def close(a: Tensor, b: Tensor, rel: float = 1e-5) -> None:
    assert (a - b).abs().max() <= rel * b.abs().max()


@pytest.mark.parametrize(("name", "kind"), WRITTEN)
def test_what_we_write_peft_computes(name: str, kind: str, origins: dict[str, Path], tmp_path: Path) -> None:
    if kind == "some" and name in ("phi3", "neox"):
        options: Adapter = Lora(rank=2, alpha=4.0, targets=("query", "up"))
    else:
        options = KINDS[kind]
    model = adapted(origins[name], options)
    before = ours(load_model(origins[name]))
    assert (ours(model) - before).abs().max() > 1e-2 * before.abs().max()
    write_adapter(model, tmp_path, options, str(origins[name]))
    opened = peft.PeftModel.from_pretrained(MODELS[name][2].from_pretrained(origins[name]), tmp_path).eval()
    close(theirs(opened), ours(model))
    close(theirs(opened.merge_and_unload()), ours(merged(model)))
    again = read_adapter(load_model(origins[name]), tmp_path).eval()
    close(ours(again), ours(model))
    close(ours(load_model(origins[name], adapter=tmp_path)), ours(model))
    close(ours(load_model(tmp_path)), ours(model))  # it names its model


@pytest.mark.parametrize(("name", "kind"), READ)
def test_what_peft_writes_we_compute(name: str, kind: str, origins: dict[str, Path], tmp_path: Path) -> None:
    """Fused modules there have one A for several layers of ours; some layers have ranks of their own."""
    dora = kind == "dora"
    base = MODELS[name][2].from_pretrained(origins[name])
    tail = FUSED.get(name, {"llama": ["q_proj", "down_proj"], "t5": ["q", "wo"]}.get(name, ["query", "dense"]))
    settings = peft.LoraConfig(
        r=3,
        lora_alpha=5,
        target_modules=tail,
        use_dora=dora,
        use_rslora=not dora,
        fan_in_fan_out=name == "gpt2",
        init_lora_weights=False,
        rank_pattern={tail[0]: 4},
        alpha_pattern={tail[-1]: 2},
        exclude_modules=["pooler.dense", "cls.predictions.transform.dense"] if "bert" in name else None,
        modules_to_save=["classifier"] if name == "bert-classes" else None,
    )
    model = peft.get_peft_model(base, settings).eval()
    shaken(model, 0.3, "magnitude")
    shaken(model, 0.3, "modules_to_save")
    model.save_pretrained(tmp_path)
    opened = read_adapter(load_model(origins[name]), tmp_path).eval()
    close(ours(opened), theirs(model))
    close(ours(load_model(origins[name], adapter=tmp_path)), theirs(model))
    options: Adapter = (Dora if dora else Lora)(rank=4, alpha=4 * 2 if dora else 4.0)
    again = tmp_path / "again"
    again.mkdir()
    write_adapter(opened, again, options)
    kept, first = (load_file(place / "adapter_model.safetensors") for place in (again, tmp_path))
    assert {key for key in first if "lora_" in key} == {key for key in kept if "lora_" in key}
    assert all(torch.equal(kept[key], first[key]) for key in kept if "lora_" in key)


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_merging_is_exact_and_leaves_the_model_as_it_was(name: str, origins: dict[str, Path]) -> None:
    model = adapted(origins[name], KINDS["dora"])
    before, state = ours(model), {key: value.clone() for key, value in model.state_dict().items()}
    plain = merged(model)
    assert not adapters_of(plain)
    close(ours(plain), before)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(ours(model), before)
    untouched = load_model(origins[name]).state_dict()
    assert {key for key, value in full_state(model).items() if not torch.equal(value, untouched[key])} == {
        f"{layer}.weight" for layer in adapters_of(model)
    }


def test_beside_packed_weights_an_adapter_stays(origins: dict[str, Path], tmp_path: Path) -> None:
    options = Lora(rank=2, alpha=4.0)
    model = adapted(origins["llama"], options)
    write_adapter(model, tmp_path, options)
    packed = load_model(origins["llama"], quant="int8", adapter=tmp_path)
    assert len(adapters_of(packed)) == len(adapters_of(model))
    close(ours(packed), ours(model), 0.05)
    with pytest.raises(Exception, match="packed"):
        merged(packed)


def test_a_directory_of_an_adapter_is_converted_to_whole_weights(origins: dict[str, Path], tmp_path: Path) -> None:
    options = Lora(rank=2, alpha=4.0)
    model = adapted(origins["llama"], options)
    (tmp_path / "a").mkdir()
    write_adapter(model, tmp_path / "a", options, str(origins["llama"]))
    write = json.loads((origins["llama"] / "config.json").read_text())
    (tmp_path / "a/config.json").write_text(json.dumps(write))
    convert(tmp_path / "a", tmp_path / "whole")
    close(theirs(AutoModelForCausalLM.from_pretrained(tmp_path / "whole")), ours(model))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("peft_type", "IA3", "peft_type"),
        ("bias", "all", "bias"),
        ("init_lora_weights", "pissa", "init_lora_weights"),
        ("layer_replication", [[0, 2]], "layer_replication"),
        ("lora_bias", True, "lora_bias"),
        ("some_new_thing", {"a": 1}, "some_new_thing"),
        ("r", "many", "config of an adapter"),
        ("r", 5, "rank"),
        ("rank_pattern", {"(": 2}, "regular expression"),
        ("use_dora", True, "magnitudes"),
    ],
)
def test_what_cant_be_built_is_refused_by_name(
    key: str, value: Any, words: str, origins: dict[str, Path], tmp_path: Path
) -> None:
    options = Lora(rank=2, alpha=4.0)
    write_adapter(adapted(origins["llama"], options), tmp_path, options)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(CheckpointError, match=words):
        load_model(origins["llama"], adapter=tmp_path)


def test_refuses_tensors_without_a_place_and_damaged_files(origins: dict[str, Path], tmp_path: Path) -> None:
    options = Lora(rank=2, alpha=4.0)
    write_adapter(adapted(origins["llama"], options), tmp_path, options)
    with pytest.raises(CheckpointError, match="no layer"):
        load_model(origins["bert"], adapter=tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(2, 3)}, file)
    with pytest.raises(CheckpointError, match="lora_embedding_A"):
        load_model(origins["llama"], adapter=tmp_path)
    save_file(
        {key: value[:, :3].contiguous() if "q_proj.lora_A" in key else value for key, value in tensors.items()}, file
    )
    with pytest.raises(CheckpointError, match="A of"):
        load_model(origins["llama"], adapter=tmp_path)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="can't be read"):
        load_model(origins["llama"], adapter=tmp_path)
    with pytest.raises(CheckpointError, match="name its model"):
        load_model(tmp_path)


def test_experts_have_no_adapter_unless_asked_and_then_are_refused() -> None:
    sizes = {"d_ff": None, "ffn.experts": 3, "ffn.ffn.d_ff": 40}
    model = Transformer(small("mixtral", **sizes), seed=0)
    attach(model, Lora(), seed=0)
    assert not any("experts" in name or "router" in name for name in adapters_of(model))
    check_adapter(model)
    model = Transformer(small("mixtral", **sizes), seed=0)
    attach(model, Lora(targets=("experts",)), seed=0)
    with pytest.raises(CheckpointError, match="experts"):
        check_adapter(model)
