"""What is wrong with a checkpoint is said by name, and nothing is dropped, guessed or run in silence."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from transpect.base.errors import CheckpointError, ConfigError, TranspectError
from transpect.core import ModelConfig, Transformer
from transpect.interop import load_config, load_model, save_model

Small = Callable[..., ModelConfig]
Tensors = dict[str, Tensor]


@pytest.fixture
def saved(small: Small, tmp_path: Path) -> Callable[..., Path]:
    """Save a small preset; edit its tensors and its config."""

    def save(
        name: str,
        tensors: Callable[[Tensors], object] = lambda tensors: None,
        config: Callable[[dict[str, Any]], object] = lambda config: None,
        **changes: Any,
    ) -> Path:
        folder = tmp_path / name
        save_model(Transformer(small(name, **changes)), folder)
        data = json.loads((folder / "config.json").read_text())
        config(data)
        (folder / "config.json").write_text(json.dumps(data))
        state = load_file(folder / "model.safetensors")
        tensors(state)
        save_file({key: value.contiguous() for key, value in state.items()}, folder / "model.safetensors")
        return folder

    return save


def message(folder: Path) -> str:
    with pytest.raises(TranspectError) as caught:
        load_model(folder)
    return str(caught.value)


def test_the_editor_of_these_tests_changes_nothing_by_itself(saved: Callable[..., Path], small: Small) -> None:
    """Its files are the library's own, not aligned as ours are."""
    for name in ("gpt2", "bert-base", "t5-small", "llama", "gpt1"):
        twin = Transformer(small(name)).state_dict()
        read = load_model(saved(name)).state_dict()
        assert read.keys() == twin.keys()
        assert all(torch.equal(read[key], twin[key]) for key in twin)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("at_once", [1, 200, 5000])
def test_weights_copied_by_parts_are_whole(
    saved: Callable[..., Path], small: Small, monkeypatch: pytest.MonkeyPatch, dtype: str, at_once: int
) -> None:
    monkeypatch.setattr("transpect.interop.weights.PART", at_once)
    for name in ("gpt2", "llama"):
        twin = Transformer(small(name)).to(getattr(torch, dtype)).state_dict()
        read = load_model(saved(name), dtype=dtype).state_dict()
        assert all(torch.equal(read[key], twin[key]) for key in twin)


# ---- tensors


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "t5-small", "llama", "gpt1"])
def test_every_missing_tensor_is_named(saved: Callable[..., Path], name: str) -> None:
    folder = saved(name, n_layers=1)
    state = load_file(folder / "model.safetensors")
    for key in state:
        save_file({other: value for other, value in state.items() if other != key}, folder / "model.safetensors")
        said = message(folder)
        assert "1 tensor is missing" in said
        assert f"({key})" in said
        assert str(folder) in said


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "t5-small", "llama", "gpt1"])
def test_every_misshaped_tensor_is_named(saved: Callable[..., Path], name: str) -> None:
    folder = saved(name, n_layers=1)
    state = load_file(folder / "model.safetensors")
    for key, value in state.items():
        wrong = value[:-1].contiguous()
        save_file({**state, key: wrong}, folder / "model.safetensors")
        said = message(folder)
        assert "1 tensor is mis-shaped" in said
        assert f"({key}: {list(wrong.shape)} instead of {list(value.shape)})" in said


def test_unexpected_tensors_are_named_ten_at_most(saved: Callable[..., Path]) -> None:
    extra = {f"transformer.h.7.extra_{i:02}.weight": torch.zeros(1) for i in range(13)}
    said = message(saved("gpt2", lambda tensors: tensors.update(extra)))
    assert "13 tensors are unexpected" in said
    assert "extra_09" in said
    assert "extra_10" not in said
    assert "and 3 more" in said


def test_all_that_is_wrong_is_said_at_once(saved: Callable[..., Path]) -> None:
    def spoil(tensors: Tensors) -> None:
        del tensors["model.norm.weight"]
        tensors["model.extra"] = torch.zeros(2)
        tensors["model.embed_tokens.weight"] = torch.zeros(3, 3)

    said = message(saved("llama", spoil))
    for part in ("1 tensor is missing (model.norm.weight)", "unexpected (model.extra)", "[3, 3] instead of [97, 48]"):
        assert part in said


VOID = {
    "gpt2": {"transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64), "transformer.h.1.attn.masked_bias": torch.ones(())},
    "bert-base": {
        "bert.embeddings.position_ids": torch.arange(64)[None],
        "bert.pooler.dense.weight": torch.ones(48, 48),
        "cls.seq_relationship.bias": torch.ones(2),
    },
    "llama": {"model.layers.1.self_attn.rotary_emb.inv_freq": torch.ones(8)},
    "t5-small": {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(32, 3)},
}


@pytest.mark.parametrize("name", VOID)
def test_void_tensors_of_published_checkpoints_are_let_be(saved: Callable[..., Path], name: str) -> None:
    load_model(saved(name, lambda tensors: tensors.update(VOID[name])))


PREFIX = {"gpt2": "transformer.", "bert-base": "bert.", "llama": "model."}


@pytest.mark.parametrize("name", PREFIX)
def test_names_may_go_without_their_prefix(saved: Callable[..., Path], name: str, small: Small) -> None:
    def strip(tensors: Tensors) -> None:
        tensors.update(VOID[name])
        for key in list(tensors):
            tensors[key.removeprefix(PREFIX[name])] = tensors.pop(key)

    read = load_model(saved(name, strip)).state_dict()
    assert all(torch.equal(read[key], value) for key, value in Transformer(small(name)).state_dict().items())


def test_names_of_an_older_day_are_known(saved: Callable[..., Path], small: Small) -> None:
    def age(tensors: Tensors) -> None:
        for key in list(tensors):
            old = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(key)

    read = load_model(saved("bert-base", age)).state_dict()
    assert all(torch.equal(read[key], value) for key, value in Transformer(small("bert-base")).state_dict().items())


def test_whole_numbers_are_no_weights(saved: Callable[..., Path]) -> None:
    def quantise(tensors: Tensors) -> None:
        tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int8)

    said = message(saved("llama", quantise))
    assert "floating-point" in said
    assert "model.norm.weight" in said


def test_where_dtypes_differ_none_loses_digits(saved: Callable[..., Path]) -> None:
    def mix(tensors: Tensors) -> None:
        for key in tensors:
            if "norm" not in key:
                tensors[key] = tensors[key].to(torch.bfloat16)

    model = load_model(saved("llama", mix))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


# ---- tied heads

TIED = [
    ("gpt2", "lm_head.weight", "transformer.wte.weight"),
    ("bert-base", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    ("bert-base", "cls.predictions.decoder.bias", "cls.predictions.bias"),
    ("t5-small", "lm_head.weight", "shared.weight"),
    ("t5-small", "encoder.embed_tokens.weight", "shared.weight"),
    ("llama", "lm_head.weight", "model.embed_tokens.weight"),
]
HEADED = [row for row in TIED if "bias" not in row[1] and "embed" not in row[1]]


@pytest.mark.parametrize(("name", "copy", "original"), TIED)
def test_a_redundant_copy_is_accepted_if_equal_and_refused_if_not(
    saved: Callable[..., Path], name: str, copy: str, original: str
) -> None:
    tie = {"head.tied": True}
    load_model(saved(name, lambda tensors: tensors.update({copy: tensors[original].clone()}), **tie))
    said = message(saved(name, lambda tensors: tensors.update({copy: tensors[original] + 1e-3}), **tie))
    assert copy in said
    assert original in said
    assert "differ" in said


@pytest.mark.parametrize(("name", "copy", "original"), TIED)
def test_either_name_of_a_tied_tensor_is_enough(
    saved: Callable[..., Path], name: str, copy: str, original: str, small: Small
) -> None:
    tie = {"head.tied": True}
    read = load_model(saved(name, lambda tensors: tensors.update({copy: tensors.pop(original)}), **tie)).state_dict()
    assert all(torch.equal(read[key], value) for key, value in Transformer(small(name, **tie)).state_dict().items())


@pytest.mark.parametrize(("name", "head", "original"), HEADED)
def test_an_absent_head_is_tied_only_where_the_config_ties_it(
    saved: Callable[..., Path], name: str, head: str, original: str
) -> None:
    untie = {"head.tied": False} | ({"head.rescaled": False} if name == "t5-small" else {})
    load_model(saved(name, **untie))
    said = message(saved(name, lambda tensors: tensors.pop(head), **untie))
    assert f"missing ({head})" in said


# ---- options

UNKNOWN = {
    "gpt2": {"attention_sink": True},
    "bert-base": {"position_biased_input": False},
    "t5-small": {"use_gated_attention": 1},
    "llama": {"residual_multiplier": 0.5},
    "gpt1": {"sliding_window": 3},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_option_is_refused_by_name(saved: Callable[..., Path], name: str) -> None:
    said = message(saved(name, config=lambda data: data.update(UNKNOWN[name])))
    (option,) = UNKNOWN[name]
    assert option in said
    assert "config.json" in said


REFUSED = [
    ("gpt2", {"n_layer": 3, "num_hidden_layers": 4}),
    ("gpt2", {"add_cross_attention": True}),
    ("gpt2", {"activation_function": "mish"}),
    ("gpt2", {"architectures": ["GPT2DoubleHeadsModel"]}),
    ("bert-base", {"is_decoder": True}),
    ("bert-base", {"position_embedding_type": "relative_key"}),
    ("bert-base", {"pruned_heads": {"0": [1]}}),
    ("t5-small", {"is_encoder_decoder": False}),
    ("t5-small", {"feed_forward_proj": "gated-relu", "is_gated_act": False}),
    ("t5-small", {"feed_forward_proj": "twice-gated-relu"}),
    ("llama", {"quantization_config": {"bits": 4}}),
    ("llama", {"model_type": "mystery"}),
    ("llama", {"vocab_size": "many"}),
    ("llama", {"num_key_value_heads": 2}),
    ("llama", {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0, 3.0]}}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0, "surprise": 1}}),
    ("llama", {"rope_scaling": {"type": "linear"}}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": -1}}),
    ("llama", {"rope_scaling": {"factor": 2.0}}),
    ("llama", {"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2.0}}),
    ("llama", {"rope_scaling": "linear"}),
    ("llama", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),  # rope_theta says otherwise
    ("llama", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}),
]


@pytest.mark.parametrize(("name", "options"), REFUSED, ids=str)
def test_an_option_that_cannot_be_built_is_refused(
    saved: Callable[..., Path], name: str, options: dict[str, Any]
) -> None:
    with pytest.raises((CheckpointError, ConfigError)):
        load_config(saved(name, config=lambda data: data.update(options)))


def test_factors_of_rope_are_one_for_each_pair(saved: Callable[..., Path]) -> None:
    """Neither list may be read in part, or stretched."""
    for pairs in (1, 7, 9):
        scaling = {"type": "longrope", "short_factor": [1.0] * pairs, "long_factor": [2.0] * pairs}
        said = message(saved("llama", config=lambda data, scaling=scaling: data.update(rope_scaling=scaling)))
        assert f"{pairs} for 16 dimensions" in said
    scaling = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    folder = saved("llama", config=lambda data: data.update(rope_scaling=scaling))
    assert load_config(folder).last.positions.scaling.kind == "longrope"


VOID_OPTIONS = [
    ("gpt2", {"n_ctx": 64, "summary_type": "cls_index", "task_specific_params": {}, "use_cache": False}),
    ("bert-base", {"gradient_checkpointing": False, "transformers_version": "4.6.0.dev0", "pooler_fc_size": 768}),
    ("t5-small", {"initializer_factor": 1.0, "dense_act_fn": "relu", "is_gated_act": False, "output_past": True}),
    ("llama", {"pretraining_tp": 2, "rope_parameters": {"rope_type": "default"}, "max_length": 20}),
]


@pytest.mark.parametrize(("name", "options"), VOID_OPTIONS, ids=str)
def test_a_void_option_changes_nothing(saved: Callable[..., Path], name: str, options: dict[str, Any]) -> None:
    assert load_config(saved(name)) == load_config(saved(name, config=lambda data: data.update(options)))


def test_what_config_leaves_out_is_what_the_family_means(saved: Callable[..., Path]) -> None:
    """An absent option is not ours to default."""
    folder = saved("llama", config=lambda data: [data.pop(name) for name in ("rms_norm_eps", "num_key_value_heads")])
    decoder = load_config(folder).decoder
    assert decoder is not None
    assert decoder.norm.eps == 1e-6
    assert decoder.attention.kv_heads == decoder.attention.n_heads


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_a_config_that_is_no_json_object(saved: Callable[..., Path], text: str) -> None:
    folder = saved("gpt2")
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    assert "config.json" in message(folder)


# ---- files


def test_pickled_weights_are_refused(saved: Callable[..., Path]) -> None:
    folder = saved("gpt2")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    said = message(folder)
    assert "safetensors" in said
    assert "pytorch_model.bin" in said
    (folder / "pytorch_model.bin").unlink()
    assert "no model.safetensors" in message(folder)


def shard(folder: Path, names: tuple[str, str] = ("one.safetensors", "two.safetensors")) -> dict[str, Any]:
    """Split the weights in two files."""
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves: list[Tensors] = [dict(list(state.items())[part::2]) for part in (0, 1)]
    for half, file in zip(halves, ("one.safetensors", "two.safetensors"), strict=True):
        save_file(half, folder / file)
    index = {
        "metadata": {"total_size": 1},
        "weight_map": {key: name for half, name in zip(halves, names, strict=True) for key in half},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return index


def test_shards_are_read_as_one(saved: Callable[..., Path], small: Small) -> None:
    for name in ("gpt2", "gpt1"):
        folder = saved(name)
        shard(folder)
        read = load_model(folder).state_dict()
        assert all(torch.equal(read[key], value) for key, value in Transformer(small(name)).state_dict().items())


@pytest.mark.parametrize(
    "name",
    ["../two.safetensors", "/tmp/two.safetensors", "sub/two.safetensors", "..", "", ".", "a\\b", "a\0b", 7, None],
)
def test_a_shard_is_a_plain_name_inside_the_directory(saved: Callable[..., Path], name: Any) -> None:
    folder = saved("gpt2")
    shard(folder, ("one.safetensors", name))
    assert "plain file name" in message(folder)


def test_a_missing_or_incomplete_shard_is_named(saved: Callable[..., Path]) -> None:
    folder = saved("gpt2")
    shard(folder, ("one.safetensors", "three.safetensors"))
    assert "three.safetensors" in message(folder)
    folder = saved("gpt2")
    shard(folder, ("one.safetensors", "one.safetensors"))
    assert "lacks tensors that the index puts there" in message(folder)


def test_a_tensor_stands_in_one_shard(saved: Callable[..., Path]) -> None:
    """The index says where a tensor is; another of its name elsewhere, or its absence there, is an error."""
    folder = saved("gpt2")
    shard(folder)
    two = load_file(folder / "two.safetensors")
    doubled, *_ = load_file(folder / "one.safetensors").items()
    save_file({**two, doubled[0]: doubled[1]}, folder / "two.safetensors")
    assert "one shard only" in message(folder)
    folder = saved("gpt2")
    index = shard(folder)
    moved = next(name for name, file in index["weight_map"].items() if file == "two.safetensors")
    index["weight_map"][moved] = "one.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "lacks tensors that the index puts there" in message(folder)


def test_a_file_cut_anywhere_is_refused(saved: Callable[..., Path]) -> None:
    folder = saved("gpt2", n_layers=1)
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for length in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 4, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert "safetensors" in message(folder)
    file.write_bytes(whole + b"\0")
    assert "safetensors" in message(folder)


@pytest.mark.parametrize("length", [2**40, 2**63, 2**64 - 1])
def test_a_header_that_lies_about_its_length_is_refused(saved: Callable[..., Path], length: int) -> None:
    folder = saved("gpt2")
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + file.read_bytes()[8:])
    assert "safetensors" in message(folder)


def test_a_header_that_lies_about_a_tensor_is_refused(saved: Callable[..., Path]) -> None:
    folder = saved("llama")
    for lie in ({"data_offsets": [0, 2**50]}, {"shape": [2**30, 2**30]}, {"dtype": "F64"}, {"data_offsets": [8, 4]}):
        header = {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **lie}}
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 4)
        assert "safetensors" in message(folder)


def test_no_code_of_a_checkpoint_runs(saved: Callable[..., Path]) -> None:
    """auto_map names code that would be imported from beside the weights; here it is only a word."""
    folder = saved("llama", config=lambda data: data.update(auto_map={"AutoModelForCausalLM": "evil.Evil"}))
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    load_model(folder)


def test_another_size_of_the_same_family_does_not_fit(saved: Callable[..., Path]) -> None:
    folder = saved("llama", config=lambda data: data.update(num_hidden_layers=3))
    assert "9 tensors are missing (model.layers.2." in message(folder)
