"""Weights that are put into formats while they are loaded, or stay in the blocks of a GGUF file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from transpect.base.errors import ConfigError
from transpect.base.gguf import read_gguf
from transpect.core import Transformer
from transpect.interop.checkpoint import load_model, save_model
from transpect.quant import BlocksLinear, Int8, Int8Linear, QuantEmbedding, QuantLinear, format_named
from transpect.quant.linear import Quantised

D_MODEL, D_FF, VOCAB = 256, 512, 40
LLAMA = {
    "context_length": 64,
    "embedding_length": D_MODEL,
    "block_count": 1,
    "feed_forward_length": D_FF,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}
ROWS = {
    "token_embd": (VOCAB, D_MODEL),
    "blk.0.attn_q": (D_MODEL, D_MODEL),
    "blk.0.attn_k": (D_MODEL // 2, D_MODEL),
    "blk.0.attn_v": (D_MODEL // 2, D_MODEL),
    "blk.0.attn_output": (D_MODEL, D_MODEL),
    "blk.0.ffn_gate": (D_FF, D_MODEL),
    "blk.0.ffn_up": (D_FF, D_MODEL),
    "blk.0.ffn_down": (D_MODEL, D_FF),
}
NORMS = ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")


def blocks(kind: Kind, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Random blocks: bytes small enough for every float16 in them to be finite."""
    if kind == Kind.F32:
        return rng.normal(size=shape).astype(np.float32)
    size, nbytes = gguf.GGML_QUANT_SIZES[kind]
    return rng.integers(0, 60, (shape[0], shape[1] // size * nbytes)).astype(np.uint8)


def write(path: Path, kind: Kind, *, untied: bool = False) -> Path:
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in LLAMA.items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    for name, shape in {**ROWS, **({"output": (VOCAB, D_MODEL)} if untied else {})}.items():
        writer.add_tensor(f"{name}.weight", blocks(kind, shape, rng), raw_dtype=kind)
    for name in NORMS:
        writer.add_tensor(f"{name}.weight", np.ones(D_MODEL, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def restored(model: Transformer) -> dict[str, torch.Tensor]:
    """All weights in full, by the names that they have without formats."""
    state = dict(model.state_dict())
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, Quantised):
            for key in module.stored():
                del state[f"{name}.{key}"]
            state[f"{name.removesuffix('.linear') if 'head' in name else name}.weight"] = module.dequantised()
    return state


@pytest.mark.parametrize("untied", [False, True], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q4_K, Kind.Q6_K], ids=lambda kind: kind.name)
def test_kept_blocks_are_the_file_s_and_stand_for_its_numbers(kind: Kind, untied: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", kind, untied=untied)
    kept, full = load_model(path, quant="keep"), load_model(path)
    linear = [module for module in kept.modules() if isinstance(module, QuantLinear)]
    assert len(linear) == len(ROWS) - 1 + untied
    assert isinstance(kept.token, QuantEmbedding)
    values, expected = restored(kept), full.state_dict()
    assert values.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(values[name], expected[name], rtol=1e-6, atol=0, msg=name)
    # rows that keep their order are those bytes of the file
    info = read_gguf(path).tensors["blk.0.ffn_down.weight"]
    raw = path.read_bytes()[info.offset : info.offset + info.nbytes]
    assert sum(bytes(module.packed.numpy().tobytes()) == raw for module in linear) == 1
    assert all(isinstance(module, BlocksLinear) for module in linear)


def test_what_has_no_blocks_stays_in_full(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", Kind.F32)
    kept, full = load_model(path, quant="keep").state_dict(), load_model(path).state_dict()
    assert kept.keys() == full.keys() and all(torch.equal(kept[name], full[name]) for name in full)


@pytest.mark.parametrize("source", ["gguf", "directory"])
@pytest.mark.parametrize("name", ["int8", "int8-group", "int4", "int4-zero", "q8_0", "q6_k"])
def test_rounded_at_load_is_near_with_the_table_in_8_bits(name: str, source: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", Kind.F32)
    full = load_model(path)
    if source == "directory":
        save_model(full, tmp_path / "hf")
        path = tmp_path / "hf"
    model = load_model(path, quant=name)
    linear = [module for module in model.modules() if isinstance(module, QuantLinear)]
    assert len(linear) == len(ROWS) - 1
    assert all(module.format == format_named(name) for module in linear)
    values, expected = restored(model), full.state_dict()
    assert values.keys() == expected.keys()
    worst = 0.0
    for key, want in expected.items():
        worst = max(worst, float((values[key] - want).norm() / want.norm()))
    assert worst < (0.11 if "4" in name.replace("-64", "") else 0.04)
    assert isinstance(model.token, QuantEmbedding) and model.token.format == Int8()


def test_int8_by_rows_is_the_nearest_of_127_steps(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", Kind.F32)
    model, full = load_model(path, quant="int8"), load_model(path)
    for name, module in model.named_modules():
        if isinstance(module, Int8Linear):
            weight = full.get_submodule(name).weight
            peak = weight.abs().amax(-1, keepdim=True)
            assert torch.equal(module.scale, peak / 127)
            assert ((module.dequantised() - weight).abs() <= module.scale * 0.5001).all()


@pytest.mark.parametrize("name", ["int8", "int4", "keep"])
def test_logits_are_those_of_the_restored_weights(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", Kind.F32 if name != "keep" else Kind.Q8_0)
    ids = torch.arange(12).view(1, 12)
    model, full = load_model(path, quant=name), load_model(path)
    full.load_state_dict(restored(model))
    assert torch.equal(model(ids), full(ids))


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such weight format"):
        load_model(write(tmp_path / "m.gguf", Kind.F32), quant="int3")
