"""Weights in formats as the blocks of a GGUF file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from transpect.base.errors import CheckpointError
from transpect.core import Transformer
from transpect.interop.checkpoint import load_model
from transpect.interop.families import FAMILIES
from transpect.interop.gguf import write_gguf
from transpect.interop.gguf.blocks import FILE_TYPES, block_of
from transpect.interop.gguf.writer import check_gguf
from transpect.quant import Format, GgufBlocks, Int4, Int8, Plan, quantise_model
from transpect.quant.linear import Quantised
from transpect.text import Tokenizer, train_tokenizer

LLAMA = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
CASES: dict[str, dict[str, Any]] = {
    "tied": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **LLAMA, "tie_word_embeddings": True},
    "untied": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **LLAMA, "tie_word_embeddings": False},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **GPT2},
}
FORMATS: list[Format] = [GgufBlocks("Q8_0"), GgufBlocks("Q4_0"), GgufBlocks("Q4_1"), Int4(32)]
IDS = torch.arange(9)[None]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer("byte-bpe", ["The cat likes fish."] * 3, 270)


def made(case: str, tokenizer: Tokenizer) -> Transformer:
    data = {"vocab_size": tokenizer.vocab_size, **CASES[case]}
    if case != "gpt2":
        data |= {"num_hidden_layers": 2, "max_position_embeddings": 64}
    return Transformer(FAMILIES[data["model_type"]].read(data), seed=4).eval()


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_the_file_holds_the_very_blocks(case: str, format: Format, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = quantise_model(made(case, tokenizer), Plan(format, {"head": format, "layers.1.*.down": None}))
    before = model(IDS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_gguf(model, tokenizer, tmp_path / "m.gguf")
    for quant in ("keep", "full"):
        torch.testing.assert_close(load_model(tmp_path / "m.gguf", quant=quant)(IDS), before, rtol=0, atol=2e-6)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    kind = block_of(format)
    assert kinds["blk.0.ffn_down.weight"] == kinds["blk.1.attn_output.weight"] == kind
    assert kinds["blk.1.ffn_down.weight"] == "F32"
    assert kinds["token_embd.weight" if case != "untied" else "output.weight"] == kind
    assert reader.fields["general.file_type"].parts[-1][0] == FILE_TYPES[kind]
    (down,) = (tensor for tensor in reader.tensors if tensor.name == "blk.0.ffn_down.weight")
    ours = model.get_submodule("towers.decoder.stack.layers.0.steps.ffn.branches.ffn.body.down")
    assert isinstance(ours, Quantised)
    dense = gguf.quants.dequantize(down.data, down.tensor_type)
    np.testing.assert_allclose(dense, ours.dequantised().numpy(), rtol=1e-6)


@pytest.mark.parametrize("format", [Int8(), Int8(32), Int4(16), Int4(32, symmetric=False)], ids=str)
def test_other_formats_are_refused_at_once(format: Format, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = made("tied", tokenizer)
    with pytest.raises(CheckpointError, match="no blocks with the numbers"):
        check_gguf(model.config, Plan(format))
    with pytest.raises(CheckpointError, match="no blocks with the numbers"):
        write_gguf(quantise_model(model, Plan(format)), tokenizer, tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


def test_one_tensor_has_one_format(tokenizer: Tokenizer, tmp_path: Path) -> None:
    plan = Plan(GgufBlocks("Q8_0"), {"value": GgufBlocks("Q4_0")})
    with pytest.raises(CheckpointError, match="c_attn"):
        write_gguf(quantise_model(made("gpt2", tokenizer), plan), tokenizer, tmp_path / "m.gguf")
