"""A model written as GGUF and read again is the same model, number for number."""

import math
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transpect import lm
from transpect.base.errors import CheckpointError
from transpect.base.gguf import TensorInfo, read_gguf
from transpect.core import EmbeddingConfig, ModelConfig, Pooled, Transformer, override
from transpect.core.positions import LinearScaling, Llama3Scaling
from transpect.interop import load_config, load_model
from transpect.interop.families import FAMILIES
from transpect.interop.family import canonical
from transpect.interop.gguf import open_gguf, write_gguf
from transpect.interop.gguf import weights as gguf_weights
from transpect.text import Tokenizer, load_tokenizer, train_tokenizer

Small = Callable[..., ModelConfig]

LINES = ["The cat likes fish.", "小猫爱吃鱼。", "It's 2024, isn't it?"] * 5


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("byte-bpe", LINES, 300)


def written(config: ModelConfig, tokenizer: Tokenizer, path: Path, dtype: Any = "f32", **options: Any) -> Transformer:
    model = Transformer(override(config, [("vocab_size", tokenizer.vocab_size + 3)]), seed=0)
    with torch.no_grad():
        for tensor in model.state_dict().values():  # no norm is as new
            tensor.add_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(1)) / 8)
    write_gguf(model, tokenizer, path, dtype, **options)
    return model


def read(path: Path, dtype: str | None = None) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    return load_config(path), load_model(path, dtype=dtype).state_dict()


ROPE = "decoder.positions.scaling"
CASES: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "llama": ("llama", []),
    "llama-tied": ("llama", [("head.tied", True)]),
    "llama-biases": ("llama", [("decoder.attention.qkv_bias", True), ("decoder.attention.out_bias", True)]),
    "llama-odd": ("llama", [("decoder.attention.head_dim", 10), ("decoder.ffn.d_ff", 52)]),
    "llama-3": ("llama", [(ROPE, Llama3Scaling(factor=8.0, original_length=32)), ("decoder.positions.theta", 5e5)]),
    "llama-linear": ("llama", [(ROPE, LinearScaling(4.0))]),
    "gpt2": ("gpt2", []),
    "gpt2-wide": ("gpt2", [("decoder.ffn.d_ff", 60)]),
    "gpt2-square": ("gpt2", [("decoder.ffn.d_ff", 48)]),
    "gpt2-untied": ("gpt2", [("head.tied", False)]),
    "bert": ("bert-base", [("head", Pooled(pool="mean"))]),
    "bert-first": ("bert-base", [("head", Pooled(pool="first"))]),
    "bert-normalized": ("bert-base", [("head", Pooled(pool="mean", normalize=True))]),
}


@pytest.mark.parametrize("case", CASES)
def test_there_and_back_bit_for_bit(case: str, small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    name, changes = CASES[case]
    model = written(override(small(name), changes), tokenizer, tmp_path / "m.gguf")
    config, state = read(tmp_path / "m.gguf")
    assert canonical(config) == canonical(model.config)
    assert state.keys() == model.state_dict().keys()
    for key, tensor in model.state_dict().items():
        assert torch.equal(state[key], tensor), key
    texts = ["The fish </s> isn't  here 猫 ٣", "<s>", ""]
    again = load_tokenizer(tmp_path / "m.gguf")
    assert again.encode_batch(texts, add_special_tokens=True) == tokenizer.encode_batch(texts, add_special_tokens=True)


SIZES = {
    "hidden_size": 48,
    "intermediate_size": 60,
    "num_hidden_layers": 7,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}
GEMMA = {**SIZES, "head_dim": 10, "query_pre_attn_scalar": 10, "sliding_window": 9}
PUBLISHED: dict[str, dict[str, Any]] = {
    "qwen2": {**SIZES, "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen3": {**SIZES, "head_dim": 10, "rope_theta": 1e6},
    "gemma2": {**GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3_text": {**GEMMA, "rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_other_families_there_and_back(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    family = FAMILIES[name]
    data = {"model_type": name, "architectures": [next(iter(family.heads))], "vocab_size": 300, **PUBLISHED[name]}
    model = written(family.read(data), tokenizer, tmp_path / "m.gguf")
    config, state = read(tmp_path / "m.gguf")
    assert canonical(config) == canonical(model.config)
    for key, tensor in model.state_dict().items():
        if "gemma" in name and tensor.ndim == 1:  # stored as 1 + weight, which rounds it
            torch.testing.assert_close(state[key], tensor, rtol=0, atol=2**-23)
        else:
            assert torch.equal(state[key], tensor), key


@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_smaller_numbers(dtype: str, name: str, small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = override(small(name), [("d_model", 64), ("decoder.attention.n_heads", 4)])
    model = written(config, tokenizer, tmp_path / "m.gguf", dtype)
    write_gguf(model, tokenizer, tmp_path / "f32.gguf")
    assert (tmp_path / "m.gguf").stat().st_size < (tmp_path / "f32.gguf").stat().st_size
    _, state = read(tmp_path / "m.gguf", "float32")
    for key, tensor in model.state_dict().items():
        if tensor.ndim < 2 or "positions" in key:
            assert torch.equal(state[key], tensor), key
        elif dtype == "f16":
            assert torch.equal(state[key], tensor.half().float()), key
        else:  # a step is 1/127 of the largest number of a block of 32
            assert (state[key] - tensor).abs().max() <= tensor.abs().max() / 127, key


def test_a_half_model_is_written_without_loss(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = Transformer(small("llama", vocab_size=tokenizer.vocab_size), seed=0).to(torch.bfloat16)
    write_gguf(model, tokenizer, tmp_path / "m.gguf")
    _, state = read(tmp_path / "m.gguf", "bfloat16")
    for key, tensor in model.state_dict().items():
        assert torch.equal(state[key], tensor), key


def test_it_is_a_language_model_like_any_other(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = written(small("llama"), tokenizer, tmp_path / "m.gguf", generation={"max_new_tokens": 5})
    there = lm.load(tmp_path / "m.gguf", device="cpu")
    here = lm.LanguageModel(model.eval(), tokenizer, there.generation)
    assert there.generate("The cat", max_new_tokens=5) == here.generate("The cat", max_new_tokens=5)
    there.save(tmp_path / "directory")
    for key, tensor in load_model(tmp_path / "directory").state_dict().items():
        assert torch.equal(model.state_dict()[key], tensor), key


def test_how_it_is_decoded_goes_along(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    wanted = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "repetition_penalty": 1.1}
    written(small("llama"), tokenizer, tmp_path / "m.gguf", generation={**wanted, "max_new_tokens": 5})
    generation = open_gguf(tmp_path / "m.gguf").generation
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}
    assert generation == {**wanted, **ids, "do_sample": True}


REFUSED: dict[str, tuple[str, list[tuple[str, Any]], str]] = {
    "encoder-decoder": ("t5-small", [], "must be one of llama"),
    "no family": ("gpt1", [], "must be one of llama"),
    "another head": ("bert-base", [], "must be one of llama"),
    "activation": ("llama", [("decoder.ffn.act", "gelu_tanh")], r"no word for.*act"),
    "gpt2 activation": ("gpt2", [("decoder.ffn.act", "relu")], r"no word for.*act"),
    "scale": ("gpt2", [("decoder.attention.scale", 1.0)], r"no word for.*scale"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_gguf_has_no_word_for_is_refused(case: str, small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    name, changes, says = REFUSED[case]
    with pytest.raises(CheckpointError, match=says):
        written(override(small(name), changes), tokenizer, tmp_path / "m.gguf")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_dtype(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="one of f32, f16, q8_0"):
        written(small("llama"), tokenizer, tmp_path / "m.gguf", "q4_0")


def test_a_number_too_large_for_f16_is_not_made_infinite(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = Transformer(small("llama", vocab_size=tokenizer.vocab_size), seed=0)
    with torch.no_grad():
        model.token.weight[3, 3] = 1e6
    with pytest.raises(CheckpointError, match="too large for f16"):
        write_gguf(model, tokenizer, tmp_path / "m.gguf", "f16")
    assert list(tmp_path.iterdir()) == []


def test_all_or_nothing(small: Small, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.gguf"
    written(small("llama"), tokenizer, file)
    before = file.read_bytes()
    calls: list[int] = []

    def full(*args: object) -> np.ndarray:
        calls.append(1)
        if len(calls) > 5:
            raise OSError(28, "No space left on device")
        return np.zeros(args[0].shape, np.float32)  # type: ignore[attr-defined]

    monkeypatch.setattr("gguf.quants.quantize", full)
    with pytest.raises(CheckpointError, match=r"can't write the checkpoint.*No space left"):
        written(small("llama"), tokenizer, file)
    assert len(calls) > 5 and file.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.gguf"]


def test_a_place_that_can_not_be_written(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="can't write here"):
        written(small("llama"), tokenizer, tmp_path / "file" / "m.gguf")


def test_every_tensor_begins_at_the_alignment(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    written(small("gpt2"), tokenizer, tmp_path / "m.gguf")
    assert all(info.offset % 32 == 0 for info in read_gguf(tmp_path / "m.gguf").tensors.values())


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
def test_no_number_of_a_gguf_file_is_read_twice(
    dtype: str, small: Small, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To dequantise is most of the work of loading; whether a tensor is there is no reason for it."""
    config = override(small("llama"), [("d_model", 64), ("decoder.attention.n_heads", 4)])
    written(config, tokenizer, tmp_path / "m.gguf", dtype)
    rows: dict[str, int] = {}
    usual = gguf_weights._read

    def counted(path: Path, info: TensorInfo, first: int, last: int) -> torch.Tensor:
        rows[info.name] = rows.get(info.name, 0) + last - first
        return usual(path, info, first, last)

    monkeypatch.setattr(gguf_weights, "_read", counted)
    load_model(tmp_path / "m.gguf", dtype="float64")
    held = read_gguf(tmp_path / "m.gguf").tensors
    assert rows == {name: info.shape[0] for name, info in held.items()}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_quantised(number: float, small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = Transformer(
        small("llama", vocab_size=tokenizer.vocab_size, d_model=64, n_heads=2, n_kv_heads=2, d_ff=96), seed=0
    )
    with torch.no_grad():
        model.token.weight[3, 3] = number
    with pytest.raises(CheckpointError, match=r"finite.*token_embd"):
        write_gguf(model, tokenizer, tmp_path / "m.gguf", "q8_0")
    assert list(tmp_path.iterdir()) == []


def test_matrices_that_do_not_become_q8_0_are_counted(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = small("llama", d_model=64, n_heads=2, n_kv_heads=2, d_ff=72)
    with pytest.warns(UserWarning, match=f"^{config.last.n_layers} tensors are written as f16.*ffn_down"):
        written(config, tokenizer, tmp_path / "m.gguf", "q8_0")


def test_a_disk_that_is_full_is_the_reason(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # a file that may not grow, as on a full disk
    try:
        with pytest.raises(CheckpointError, match=r"can't write the checkpoint: .*File too large"):
            written(small("llama"), tokenizer, tmp_path / "m.gguf")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_family_that_has_no_architecture_is_named(small: Small, tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = replace(small("llama"), family="bloom", embedding=EmbeddingConfig(scaled=True, token_types=2))
    with pytest.raises(CheckpointError, match="got 'bloom with the head causal_lm'"):
        written(other, tokenizer, tmp_path / "m.gguf")
