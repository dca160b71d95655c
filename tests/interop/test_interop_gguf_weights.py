"""The tensors of a GGUF file, as a Hugging Face checkpoint of the same model has them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from transpect.base.errors import CheckpointError
from transpect.base.gguf import read_gguf
from transpect.interop.gguf import GgufWeights, open_gguf
from transpect.interop.gguf.architectures import ARCHITECTURES
from transpect.interop.gguf.rope import FACTORS, factors
from transpect.interop.gguf.table import Layout, Source

HEADS, KV_HEADS, WIDTH, D_MODEL, D_FF, VOCAB = 4, 2, 64, 256, 512, 96
LLAMA: dict[str, Any] = {
    "llama.context_length": 128,
    "llama.embedding_length": D_MODEL,
    "llama.block_count": 1,
    "llama.feed_forward_length": D_FF,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 5e5,
    "llama.rope.dimension_count": WIDTH,
}


def tensors(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        "token_embd.weight": (VOCAB, D_MODEL),
        "blk.0.attn_norm.weight": (D_MODEL,),
        "blk.0.attn_q.weight": (HEADS * WIDTH, D_MODEL),
        "blk.0.attn_k.weight": (KV_HEADS * WIDTH, D_MODEL),
        "blk.0.attn_v.weight": (KV_HEADS * WIDTH, D_MODEL),
        "blk.0.attn_output.weight": (D_MODEL, D_MODEL),
        "blk.0.ffn_norm.weight": (D_MODEL,),
        "blk.0.ffn_gate.weight": (D_FF, D_MODEL),
        "blk.0.ffn_up.weight": (D_FF, D_MODEL),
        "blk.0.ffn_down.weight": (D_MODEL, D_FF),
        "output_norm.weight": (D_MODEL,),
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write(
    path: Path, metadata: Mapping[str, Any], held: Mapping[str, np.ndarray], kind: Kind = Kind.F32, arch: str = "llama"
) -> Path:
    writer = gguf.GGUFWriter(path, arch)
    for key, value in metadata.items():
        if isinstance(value, list):
            writer.add_array(key, value)
            continue
        adds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        adds[type(value)](key, value)
    for name, array in held.items():
        own = kind if array.ndim > 1 else Kind.F32
        writer.add_tensor(name, gguf.quants.quantize(array, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


KINDS = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_numbers_are_those_of_the_gguf_package(kind: Kind, tmp_path: Path) -> None:
    held = tensors()
    weights = open_gguf(write(tmp_path / "m.gguf", LLAMA, held, kind)).weights
    for theirs, ours in (("token_embd", "embed_tokens"), ("blk.0.ffn_down", "layers.0.mlp.down_proj")):
        expected = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(held[f"{theirs}.weight"], kind), kind))
        name = f"model.{ours}.weight"
        assert torch.equal(weights[name].float(), expected)
        assert torch.equal(weights.passing(name).float(), expected)
        assert torch.equal(weights.passing(name, slice(3, 7)).float(), expected[3:7])
        for dtype in (torch.float32, torch.bfloat16):
            assert torch.equal(weights.copy(name, dtype, torch.device("cpu")), expected.to(dtype))
    assert weights.dtypes["model.norm.weight"] == torch.float32
    assert torch.equal(weights["model.norm.weight"], torch.from_numpy(held["output_norm.weight"]))


@pytest.mark.parametrize(
    "kind", [Kind.Q4_K, Kind.Q6_K, Kind.Q5_K, Kind.Q2_K, Kind.Q3_K, Kind.IQ4_NL], ids=lambda kind: kind.name
)
def test_blocks_that_the_package_only_reads(kind: Kind, tmp_path: Path) -> None:
    """Random bytes are blocks too: any scale, any nibble."""
    rng = np.random.default_rng(1)
    block, nbytes = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 60, (VOCAB, D_MODEL // block * nbytes)).astype(np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for key, value in LLAMA.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    writer.add_tensor("token_embd.weight", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = open_gguf(tmp_path / "m.gguf").weights
    expected = torch.from_numpy(gguf.quants.dequantize(raw, kind))
    torch.testing.assert_close(weights["model.embed_tokens.weight"], expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(
        weights.passing("model.embed_tokens.weight", slice(90, 96)), expected[90:], rtol=0, atol=0, equal_nan=True
    )


def test_blocks_that_the_package_can_not_read(tmp_path: Path) -> None:
    block, nbytes = gguf.GGML_QUANT_SIZES[Kind.Q8_1]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for key, value in LLAMA.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    raw = np.zeros((VOCAB, D_MODEL // block * nbytes), np.uint8)
    writer.add_tensor("token_embd.weight", raw, raw_dtype=Kind.Q8_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"token_embd\.weight is quantised in a way.*Q8_1"):
        open_gguf(tmp_path / "m.gguf").weights["model.embed_tokens.weight"]


def test_query_and_key_rows_are_turned_back(tmp_path: Path) -> None:
    held = tensors()
    weights = open_gguf(write(tmp_path / "m.gguf", LLAMA, held, Kind.Q8_0)).weights
    for part, heads in (("q", HEADS), ("k", KV_HEADS)):
        there = torch.from_numpy(
            gguf.quants.dequantize(gguf.quants.quantize(held[f"blk.0.attn_{part}.weight"], Kind.Q8_0), Kind.Q8_0)
        )
        # the file has the two numbers of each rotated pair side by side
        expected = there.view(heads, WIDTH // 2, 2, D_MODEL).transpose(1, 2).reshape(heads * WIDTH, D_MODEL)
        name = f"model.layers.0.self_attn.{part}_proj.weight"
        assert torch.equal(weights[name], expected)
        assert torch.equal(weights.copy(name, torch.float32, torch.device("cpu")), expected)
        for rows in (slice(0, 1), slice(5, 70), slice(63, 65), slice(100, None), slice(4, 4)):
            assert torch.equal(weights.passing(name, rows), expected[rows])


def test_parts_are_seams_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = open_gguf(write(tmp_path / "m.gguf", LLAMA, tensors(), Kind.Q8_0)).weights
    whole = {name: weights.copy(name, torch.float32, torch.device("cpu")) for name in weights}
    for part in (1, 1000, 20_000):
        monkeypatch.setattr("transpect.interop.gguf.weights._PART", part)
        for name, expected in whole.items():
            assert torch.equal(weights.copy(name, torch.float32, torch.device("cpu")), expected)


@pytest.mark.parametrize(
    ("layout", "undone"),
    [
        (Layout(), lambda t: t),
        (Layout(shift=1.0), lambda t: t - 1),
        (Layout(transposed=True), lambda t: t.t()),
    ],
)
def test_each_layout_is_undone(layout: Layout, undone: Any, tmp_path: Path) -> None:
    from dataclasses import replace

    from transpect.interop.gguf.table import Place

    held = {"blk.0.ffn_up.weight": tensors()["blk.0.ffn_up.weight"]}
    file = read_gguf(write(tmp_path / "m.gguf", {}, held))
    table = replace(ARCHITECTURES["llama"], places=(Place("blk.#.ffn_up.*", "up.#.*", layout),))
    weights = GgufWeights(file, table, {})
    expected = undone(torch.from_numpy(held["blk.0.ffn_up.weight"]))
    assert weights.shapes == {"up.0.weight": tuple(expected.shape)}
    assert torch.equal(weights["up.0.weight"], expected)
    assert torch.equal(weights.passing("up.0.weight", slice(2, 9)), expected[2:9])
    assert torch.equal(weights.copy("up.0.weight", torch.float32, torch.device("cpu")), expected)


def test_what_the_config_says(tmp_path: Path) -> None:
    extra = {"tokenizer.ggml.eos_token_id": 5, "tokenizer.ggml.eot_token_id": 7, "general.sampling.temp": 0.6}
    config, weights, generation, pooled = open_gguf(write(tmp_path / "m.gguf", {**LLAMA, **extra}, tensors()))
    assert config["rms_norm_eps"] == 1e-5 and config["rope_theta"] == 5e5
    assert config["vocab_size"] == VOCAB and config["tie_word_embeddings"] is True
    assert config["attention_bias"] is False and config["rope_scaling"] is None
    assert generation == {"eos_token_id": [5, 7], "temperature": 0.6, "do_sample": True}
    assert pooled is None and len(weights) == 11


def test_a_head_of_its_own_is_not_tied(tmp_path: Path) -> None:
    held = {**tensors(), "output.weight": tensors(1)["token_embd.weight"]}
    config, weights, *_ = open_gguf(write(tmp_path / "m.gguf", LLAMA, held))
    assert config["tie_word_embeddings"] is False
    assert torch.equal(weights["lm_head.weight"], torch.from_numpy(held["output.weight"]))


def test_a_tensor_without_a_place_keeps_its_name(tmp_path: Path) -> None:
    held = {**tensors(), "blk.0.attn_sinks.weight": np.ones(4, np.float32)}
    assert "blk.0.attn_sinks.weight" in open_gguf(write(tmp_path / "m.gguf", LLAMA, held)).weights


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192, "low_freq_factor": 1.0}
SCALINGS = [
    {**LLAMA3, "high_freq_factor": 4.0},
    {**LLAMA3, "high_freq_factor": 4.0, "factor": 32.0},
    {**LLAMA3, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096},
    {**LLAMA3, "high_freq_factor": 3.0, "original_max_position_embeddings": 6000},
]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_llama_3_scaling_is_found_in_its_factors(scaling: dict[str, Any], tmp_path: Path) -> None:
    given = factors({"head_dim": WIDTH, "rope_theta": 5e5, "rope_scaling": scaling})
    assert given is not None
    config = open_gguf(write(tmp_path / "m.gguf", LLAMA, {**tensors(), FACTORS: given})).config
    again = factors(config)
    assert again is not None
    np.testing.assert_allclose(again, given, rtol=1e-5)
    assert config["rope_scaling"]["factor"] == scaling["factor"]
    if scaling["high_freq_factor"] == 4.0:
        assert config["rope_scaling"] == scaling


def test_llama_3_factors_known_values() -> None:
    """Of head width 128, base 5e5, factor 8, 1 to 4, original length 8192."""
    given = factors({"head_dim": 128, "rope_theta": 5e5, "rope_scaling": SCALINGS[0]})
    assert given is not None
    frequency = 5e5 ** -(np.arange(0, 128, 2) / 128) / given
    assert np.all(given[:29] == 1)
    np.testing.assert_allclose(frequency[[29, 34, 35]], [2.16657e-3, 1.78508e-4, 9.55621e-5], rtol=1e-5)


def test_factors_that_are_no_ones_are_refused(tmp_path: Path) -> None:
    given = np.linspace(1, 9, WIDTH // 2).astype(np.float32)
    with pytest.raises(CheckpointError, match="does not hold the factors of Llama 3"):
        open_gguf(write(tmp_path / "m.gguf", LLAMA, {**tensors(), FACTORS: given}))
    same = open_gguf(write(tmp_path / "m.gguf", LLAMA, {**tensors(), FACTORS: np.ones(WIDTH // 2, np.float32)}))
    assert same.config["rope_scaling"] is None
    with pytest.raises(CheckpointError, match="a number for each pair"):
        open_gguf(write(tmp_path / "m.gguf", LLAMA, {**tensors(), FACTORS: np.ones(3, np.float32)}))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            {"rope_type": "linear", "factor": 4.0},
        ),
        ({"llama.rope.scale_linear": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        ({"llama.rope.scaling.type": "none"}, None),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 32,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        ),
    ],
)
def test_scaling_in_the_metadata(said: dict[str, Any], expected: Any, tmp_path: Path) -> None:
    assert open_gguf(write(tmp_path / "m.gguf", {**LLAMA, **said}, tensors())).config["rope_scaling"] == expected


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"llama.expert_count": 8}, r"does not know these keys.*llama\.expert_count"),
    "missing": ({"llama.block_count": None}, r"must say llama\.block_count"),
    "kind": ({"llama.block_count": 2.0}, r"llama\.block_count must be of the type int"),
    "layers": ({"llama.attention.head_count_kv": [1, 2]}, "the same number for each layer"),
    "partial": ({"llama.rope.dimension_count": 32, "llama.attention.key_length": 64}, "must have the same length"),
    "scaling": ({"llama.rope.scaling.type": "longrope"}, "none, linear or yarn"),
    "yarn": ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_beta_fast": 8.0}, "yarn_beta_fast"),
    "causal": ({"llama.attention.causal": False}, "causal must be True"),
    "heads": ({"llama.attention.head_count": 0}, "head_count must be at least 1"),
    "odd heads": ({"llama.attention.head_count": 3, "llama.rope.dimension_count": 64}, "heads of an even width"),
    "attention factor": ({"llama.rope.scaling.attn_factor": 1.5}, "attn_factor can't be other than 1.0"),
    "split": ({"split.count": 3}, "split over several files"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_metadata_that_can_not_be_read(fault: str, tmp_path: Path) -> None:
    changes, says = FAULTS[fault]
    metadata = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    file = write(tmp_path / "m.gguf", metadata, tensors())
    with pytest.raises(CheckpointError, match=says) as caught:
        open_gguf(file)
    assert caught.value.file == file


def test_an_architecture_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"must be one of llama, qwen2.*mamba"):
        open_gguf(write(tmp_path / "m.gguf", {}, tensors(), arch="mamba"))


def test_a_vocabulary_alone_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="must hold the tensor token_embd"):
        open_gguf(write(tmp_path / "m.gguf", LLAMA, {}))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_table_says_each_name_once(name: str) -> None:
    table = ARCHITECTURES[name]
    theirs, ours = [place.theirs for place in table.places], [place.name for place in table.places]
    assert len(set(theirs)) == len(theirs) and len(set(ours)) == len(ours)
    for place in table.places:
        example = place.theirs.replace("#", "11").replace("*", "bias")
        name_there, layout = table.name_of(example)
        assert table.place_of(name_there) == (example, layout)


def test_the_shortest_spelling(tmp_path: Path) -> None:
    source = Source("x", {"x.eps": math.nan, "x.n": True}, {}, lambda name: np.zeros(1, np.float32))
    with pytest.raises(CheckpointError, match="type int"):
        source.get("n", int)
