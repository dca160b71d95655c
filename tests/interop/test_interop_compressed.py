"""Directories whose weights are in few bits: written, read again, and refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import CheckpointError
from transpect.core import Moe, Transformer
from transpect.core.presets import PRESETS
from transpect.interop.checkpoint import check_formats, family_of, load_config, load_model, save_model
from transpect.interop.compressed import words
from transpect.interop.convert import convert
from transpect.interop.families import FAMILIES
from transpect.quant import Format, GgufBlocks, Int4, Int8, Plan, QuantLinear, quantise_model
from transpect.quant.linear import Quantised

FORMATS: list[Format] = [Int8(), Int8(16), Int4(16), Int4(32, symmetric=False), GgufBlocks("Q8_0"), GgufBlocks("Q4_0")]
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 50, "num_hidden_layers": 2}
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "max_position_embeddings": 32}
QWEN = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 50,
    "num_hidden_layers": 2,
    **SIZES,
    "num_key_value_heads": 2,
}


def made(data: dict[str, Any], seed: int = 0) -> Transformer:
    model = Transformer(FAMILIES[data["model_type"]].read(data), seed=seed).eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed)))
    return model


def run(model: Transformer) -> torch.Tensor:
    ids = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))
    more = {"source": model.encode(ids.flip(1))} if len(model.towers) > 1 else {}
    with torch.no_grad():
        out: torch.Tensor = model(ids, **more)
    return out


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("count", [1, 5, 31, 32, 33, 70])
def test_numbers_stand_one_after_another_without_gaps(bits: int, count: int) -> None:
    numbers = torch.randint(0, 2**bits, (3, count), generator=torch.Generator().manual_seed(bits)).to(torch.uint8)
    rows = [sum(int(number) << bits * i for i, number in enumerate(row)) for row in numbers]
    expected = torch.tensor(
        [[(row >> 32 * w & 2**32 - 1) for w in range(words.n_words(count, bits))] for row in rows], dtype=torch.int64
    ).to(torch.int32)
    assert torch.equal(words.unpack(expected, bits, count), numbers)
    if bits in (4, 8):
        assert torch.equal(words.pack(numbers, bits), expected)
        assert torch.equal(words.pack(numbers.t().contiguous().t(), bits), expected)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_formats_come_back_and_compute_the_same(format: Format, dtype: torch.dtype, tied: bool, tmp_path: Path) -> None:
    model = made({**LLAMA, **SIZES, "tie_word_embeddings": tied}).to(dtype)
    quantise_model(model, Plan(format, {"down": Int8(), "layers.1.*.out": None, "head": format}))
    before = run(model)
    save_model(model, tmp_path)
    for quant in (None, "keep"):
        again = load_model(tmp_path, quant=quant)
        assert torch.equal(run(again), before)
        kept = {name for name, each in again.named_modules() if isinstance(each, QuantLinear)}
        assert kept == {name for name, each in model.named_modules() if isinstance(each, QuantLinear)}
        assert again.token.weight.dtype == dtype and isinstance(again.token, torch.nn.Embedding)
    full = load_model(tmp_path, quant="full", dtype=torch.float32)
    assert not any(isinstance(each, Quantised) for each in full.modules())
    assert torch.equal(run(full), run(load_model(tmp_path, dtype=torch.float32)))
    save_model(load_model(tmp_path), tmp_path / "again")
    files = [tmp_path / "model.safetensors", tmp_path / "again" / "model.safetensors"]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("name", PRESETS)
def test_every_architecture_comes_back(name: str, tmp_path: Path) -> None:
    config = PRESETS[name].build()
    towers = {
        tower: replace(
            stack,
            n_layers=2,
            attention=replace(stack.attention, n_heads=4, n_kv_heads=None, head_dim=10),
            ffn=replace(stack.ffn, d_ff=160),  # type: ignore[type-var]
        )
        for tower, stack in config.towers.items()
    }
    model = Transformer(replace(config, vocab_size=50, d_model=40, context_length=32, **towers), seed=1).eval()
    quantise_model(model, Plan(Int8(), {"token": Int8(), "down": Int4(20), "up": Int4(10, symmetric=False)}))
    before = run(model)
    transposed = name in ("gpt1", "gpt2")
    if transposed:
        with pytest.warns(UserWarning, match="no packed layout"):
            save_model(model, tmp_path)
    else:
        save_model(model, tmp_path)
    assert torch.equal(run(load_model(tmp_path)), before)
    kind = json.loads((tmp_path / "config.json").read_text())["model_type"]
    assert kind == ("transpect" if transposed else family_of(model.config))


def test_experts_and_routers(tmp_path: Path) -> None:
    model = made({**LLAMA, **SIZES})
    stack = model.config.towers["decoder"]
    config = replace(model.config, family="mixtral", decoder=replace(stack, ffn=Moe(experts=4, ffn=stack.ffn)))
    model = quantise_model(Transformer(config, seed=2).eval(), Plan(Int4(16)))
    before = run(model)
    save_model(model, tmp_path)
    assert torch.equal(run(load_model(tmp_path)), before)
    data = json.loads((tmp_path / "config.json").read_text())
    assert data["model_type"] == "mixtral"
    assert any(name.endswith("block_sparse_moe.gate") for name in data["quantization_config"]["ignore"])


def test_what_is_not_packed_can_take_a_format_at_load(tmp_path: Path) -> None:
    save_model(quantise_model(made({**LLAMA, **SIZES}), Plan(Int4(16))), tmp_path)
    model = load_model(tmp_path, quant=Plan(Int8(), {"token": Int8()}))
    assert all(each.format == Int4(16) for each in model.modules() if isinstance(each, QuantLinear))
    assert isinstance(model.token, Quantised) and model.token.format == Int8()


def test_a_dtype_restores_and_none_keeps(tmp_path: Path) -> None:
    save_model(quantise_model(made(QWEN), Plan(Int4(16))), tmp_path / "packed")
    before = run(load_model(tmp_path / "packed"))
    from transpect.text import train_tokenizer

    train_tokenizer("char", ["abc"]).save(tmp_path / "packed")
    convert(tmp_path / "packed", tmp_path / "same")
    convert(tmp_path / "packed", tmp_path / "full", dtype="float32")
    assert (tmp_path / "same" / "model.safetensors").stat().st_size < (
        tmp_path / "full" / "model.safetensors"
    ).stat().st_size
    for folder in ("same", "full"):
        assert torch.equal(run(load_model(tmp_path / folder)), before)
    assert "quantization_config" not in json.loads((tmp_path / "full" / "config.json").read_text())


def edited(folder: Path, change: Any) -> Path:
    """A packed checkpoint whose ``quantization_config`` is changed."""
    save_model(quantise_model(made({**LLAMA, **SIZES}), Plan(Int8())), folder)
    data = json.loads((folder / "config.json").read_text())
    data["quantization_config"] = change(data["quantization_config"])
    (folder / "config.json").write_text(json.dumps(data))
    return folder


def weights(**changed: Any) -> Any:
    def change(config: dict[str, Any]) -> dict[str, Any]:
        config["config_groups"]["group_0"]["weights"] |= changed
        return config

    return change


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda config: {"quant_method": "gptq", "bits": 4}, "gptq"),
        (lambda config: {"quant_method": "awq"}, "awq"),
        (lambda config: {"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        (lambda config: config | {"format": "float-quantized"} | groups("float-quantized"), "float-quantized"),
        (lambda config: groups("nvfp4-pack-quantized", config), "nvfp4-pack-quantized"),
        (lambda config: groups("marlin-24", config), "marlin-24"),
        (weights(type="float"), "float8"),
        (weights(num_bits=16), "int16"),
        (weights(strategy="block", block_structure=[128, 128]), "block"),
        (weights(actorder="group"), "actorder"),
        (lambda config: config | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24-bitmask"),
        (lambda config: config | {"transform_config": {"config_groups": {"u": {}}}}, "transform_config"),
        (lambda config: config | {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "kv_cache_scheme"),
        (lambda config: config | {"quantization_status": "initialized"}, "initialized"),
        (lambda config: config | {"config_groups": {}}, "config_groups"),
        (lambda config: 7, "JSON object"),
    ],
)
def test_what_is_quantised_otherwise_is_refused_by_name(change: Any, part: str, tmp_path: Path) -> None:
    folder = edited(tmp_path / "m", change)
    for load in (load_config, load_model):
        with pytest.raises(CheckpointError, match=part) as caught:
            load(folder)
        assert "config.json" in str(caught.value)


def groups(form: str, config: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"}, "format": form}
    return (config or {"quant_method": "compressed-tensors"}) | {"config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    "change", [weights(num_bits=4), weights(symmetric=False), weights(strategy="group", group_size=8)]
)
def test_tensors_that_the_config_does_not_describe_are_refused(change: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no group of modules"):
        load_model(edited(tmp_path / "m", change))


def test_what_the_layout_can_t_say_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model = quantise_model(made({**LLAMA, **SIZES}), Plan(GgufBlocks("Q4_1")))
    with pytest.raises(CheckpointError, match="Q4_1"):
        save_model(model, tmp_path / "m")
    assert not list(tmp_path.iterdir())
    phi = {**LLAMA, **SIZES, "model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "pad_token_id": 0}
    config = made(phi).config
    with pytest.raises(CheckpointError, match="qkv_proj"):
        check_formats(config, Plan(Int8(), {"value": Int8(16)}))
    with pytest.raises(CheckpointError, match=r"Int8.*full|full.*Int8"):
        check_formats(config, Plan(Int8(), {"value": None}))
    check_formats(config, Plan(Int8()))


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transpect.interop import checkpoint

    whole = made({**LLAMA, **SIZES})
    save_model(whole, tmp_path / "m")
    before = {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()}

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_weights", full_disk)
    with pytest.raises(CheckpointError, match="No space"):
        save_model(quantise_model(whole, Plan(Int8())), tmp_path / "m")
    assert {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]
