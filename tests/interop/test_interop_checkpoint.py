"""Saving and loading: the same bits come back, of whatever kind the model is."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open

from transpect.base.errors import CheckpointError, ConfigError
from transpect.core import (
    PRESETS,
    Causal,
    CausalLM,
    Full,
    KaimingInit,
    MaskedLM,
    ModelConfig,
    Naive,
    Pooled,
    PrefixLM,
    SameSegment,
    SequenceClass,
    TokenClass,
    Transform,
    Transformer,
    override,
    preset,
)
from transpect.core.positions import Position, Rope
from transpect.interop import family_of, load_config, load_generation, load_model, resolve, save_model
from transpect.interop.family import canonical

Small = Callable[..., ModelConfig]
FAMILY = {
    "gpt1": "openai-gpt",
    "gpt2": "gpt2",
    "bert-base": "bert",
    "t5-small": "t5",
    "llama": "llama",
    "bart-base": "bart",
}
IDS = torch.randint(0, 97, (2, 9), generator=torch.Generator().manual_seed(0))


def output(model: Transformer) -> torch.Tensor:
    source = {"source": model.encode(IDS.flip(1))} if model.config.kind == "encoder-decoder" else {}
    return model(IDS, **source)


@torch.no_grad()
def assert_comes_back(model: Transformer, folder: Path) -> Transformer:
    model = model.eval()
    before = output(model)
    save_model(model, folder)
    again = load_model(folder)
    assert canonical(again.config) == canonical(model.config) == canonical(load_config(folder))
    ours, read = model.state_dict(), again.state_dict()
    assert ours.keys() == read.keys()
    for name, tensor in ours.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor), name
    assert_computes_the_same(again, before)
    return again


def assert_computes_the_same(model: Transformer, before: torch.Tensor) -> None:
    """Not only the same weights: the same bits computed.

    A matrix that stays transposed in the mapped file is read by columns, and a BLAS adds in another order then.
    """
    after = output(model)
    if all(parameter.is_contiguous() for parameter in model.parameters()):
        assert torch.equal(after, before)
        return
    rounding = 16 * torch.finfo(before.dtype).eps * before.abs().max().item()
    assert torch.allclose(after, before, rtol=0.0, atol=rounding)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_presets_come_back(name: str, dtype: torch.dtype, small: Small, tmp_path: Path) -> None:
    assert_comes_back(Transformer(small(name)).to(dtype), tmp_path / "x")


@pytest.mark.parametrize("kind", Position.kinds())
@pytest.mark.parametrize("name", ["gpt2", "bert-base"])
def test_positions_come_back(kind: str, name: str, small: Small, tmp_path: Path) -> None:
    assert_comes_back(Transformer(small(name, positions=kind)), tmp_path / "x")


HEADS = [
    CausalLM(tied=False, bias=True),
    MaskedLM(tied=False),
    SequenceClass(5),
    SequenceClass(5, pool="last", transform=None, bias=False),
    TokenClass(5),
    Pooled(),
    Pooled(pool="first", transform=Transform()),
]


@pytest.mark.parametrize("head", HEADS, ids=repr)
@pytest.mark.parametrize("name", ["gpt2", "bert-base", "llama"])
def test_heads_come_back(head: Any, name: str, small: Small, tmp_path: Path) -> None:
    assert_comes_back(Transformer(override(small(name), [("head", head)])), tmp_path / "x")


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_family_that_opens_elsewhere(name: str) -> None:
    assert family_of(preset(name)) == FAMILY.get(name, "transpect")


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": "naive"},
        {"dropout": 0.37, "embedding.dropout": 0.21},
        {"init": KaimingInit()},
    ],
    ids=str,
)
def test_what_belongs_to_training_is_no_part_of_a_family(name: str, changes: dict[str, Any], small: Small) -> None:
    assert family_of(small(name, **changes)) == FAMILY[name]


@pytest.mark.parametrize(
    "rule", [Causal() & SameSegment(), SameSegment() & Causal(), Full() & (SameSegment() & Causal())], ids=repr
)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_rule_of_packed_documents_is_no_part_of_a_family(name: str, rule: Any, small: Small) -> None:
    assert family_of(small(name).map_stacks(visibility=rule)) == FAMILY[name]


NEAR_MISSES: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"positions": "rope"}),
    ("gpt2", {"positions": "none"}),
    ("gpt2", {"visibility": PrefixLM()}),
    ("gpt2", {"visibility": {"kind": "window", "width": 8}}),
    ("gpt2", {"visibility": Full()}),
    ("gpt2", {"placement": "post"}),
    ("gpt2", {"norm": "rmsnorm"}),
    ("gpt2", {"norm.bias": False}),
    ("gpt2", {"n_kv_heads": 1}),
    ("gpt2", {"head_dim": 10}),
    ("gpt2", {"attention.qkv_bias": False}),
    ("gpt2", {"attention.scale": 0.3}),
    ("gpt2", {"attention.qk_norm": {"norm": "rmsnorm"}}),
    ("gpt2", {"ffn": {"kind": "glu", "bias": True}}),
    ("gpt2", {"steps": [["self", "ffn"]]}),
    ("gpt2", {"decoder.final_norm": False}),
    ("gpt2", {"embedding.scaled": True}),
    ("gpt2", {"embedding.token_types": 2}),
    ("gpt2", {"head.bias": True}),
    ("gpt2", {"head.soft_cap": 30.0}),
    ("gpt2", {"positions": {"kind": "learned", "offset": 2}}),
    ("bert-base", {"visibility": Causal()}),
    ("bert-base", {"placement": "pre"}),
    ("bert-base", {"embedding.norm": None}),
    ("bert-base", {"embedding.token_types": 0}),
    ("bert-base", {"embedding.norm.eps": 1e-5}),
    ("bert-base", {"head.act": "relu"}),
    ("bert-base", {"head.norm.eps": 1e-5}),
    ("bert-base", {"head.bias": False}),
    ("bert-base", {"head": Pooled(transform=Transform())}),
    ("t5-small", {"encoder.attention.n_heads": 2}),
    ("t5-small", {"decoder.ffn.d_ff": 61}),
    ("t5-small", {"ffn.bias": True}),
    ("t5-small", {"attention.scale": None}),
    ("t5-small", {"decoder.cross": {"n_heads": 2, "head_dim": 10}}),
    ("t5-small", {"ffn": {"kind": "glu", "act": "gelu", "d_ff": 60}}),
    ("t5-small", {"head.rescaled": True, "head.tied": False}),
    ("llama", {"placement": "sandwich"}),
    ("llama", {"norm.unit_offset": True}),
    ("llama", {"positions.fraction": 0.5}),
    ("llama", {"positions.interleaved": True}),
    ("llama", {"attention.out_bias": True}),
    ("llama", {"attention.n_heads": 5, "attention.head_dim": 10, "n_kv_heads": 1}),
    ("llama", {"positions.scaling": {"kind": "dynamic", "factor": 2.0, "original_length": 64}}),
]


@pytest.mark.parametrize(("name", "changes"), NEAR_MISSES, ids=str)
def test_a_near_miss_is_saved_as_what_it_is(name: str, changes: dict[str, Any], small: Small, tmp_path: Path) -> None:
    """A family that does not compute the same is never claimed; the model comes back all the same, natively or as one
    of another family (GPT-2 with norms after its branches is a GPT-1)."""
    config = small(name, **changes)
    assert family_of(config) != FAMILY[name]
    assert_comes_back(Transformer(config), tmp_path / "x")


NEIGHBOURS: list[tuple[str, dict[str, Any], str, str]] = [
    ("gpt2", {"positions": "rope"}, "gpt_neox", "AutoModelForCausalLM"),
    ("gpt2", {"placement": "post"}, "openai-gpt", "AutoModelForCausalLM"),
    ("gpt2", {"positions": {"kind": "learned", "offset": 2}}, "opt", "AutoModelForCausalLM"),
    ("bert-base", {"embedding.token_types": 0}, "distilbert", "AutoModelForMaskedLM"),
    ("llama", {"positions.fraction": 0.5}, "phi3", "AutoModelForCausalLM"),
    (
        "llama",
        {"attention.n_heads": 5, "attention.head_dim": 10, "n_kv_heads": 1},
        "mistral",
        "AutoModelForCausalLM",
    ),
]


@pytest.mark.parametrize(("name", "changes", "family", "opener"), NEIGHBOURS, ids=str)
@torch.no_grad()
def test_a_near_miss_that_another_family_claims_is_of_that_family(
    name: str, changes: dict[str, Any], family: str, opener: str, small: Small, tmp_path: Path
) -> None:
    """As `transformers` builds that family."""
    config = small(name, **changes)
    assert family_of(config) == family
    model = Transformer(config, seed=3).eval()
    save_model(model, tmp_path / "x")
    theirs = getattr(transformers, opener).from_pretrained(tmp_path / "x").eval()
    assert torch.allclose(theirs(IDS).logits, model(IDS), rtol=0.0, atol=1e-5)


SCALINGS = [
    {"kind": "linear", "factor": 3.0},
    {"kind": "dynamic", "factor": 4.0, "original_length": 16},
    {"kind": "yarn", "factor": 4.0, "original_length": 16},
    {
        "kind": "yarn",
        "factor": 4.0,
        "original_length": 16,
        "beta_fast": 9.0,
        "attention_factor": 1.3,
        "truncate": False,
    },
    {"kind": "llama3", "factor": 4.0, "original_length": 16, "high_freq_factor": 3.0},
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_rope_scalings_belong_to_the_family(scaling: dict[str, Any], small: Small, tmp_path: Path) -> None:
    config = small("llama", **{"positions.scaling": scaling, "positions.theta": 500.0})
    assert family_of(config) == "llama"
    again = assert_comes_back(Transformer(config), tmp_path / "x").config
    assert again.decoder is not None
    assert isinstance(again.decoder.positions, Rope)
    assert again.context_length == 64


def test_generation_and_special_ids(small: Small, tmp_path: Path) -> None:
    generation = {"eos_token_id": [3, 5], "pad_token_id": 0, "temperature": 0.5}
    for name in ("gpt2", "gpt1"):
        save_model(Transformer(small(name)), tmp_path / name, generation=generation)
        assert load_generation(tmp_path / name) == generation
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (None, [3, 5], 0)
        (tmp_path / name / "generation_config.json").unlink()
        assert load_generation(tmp_path / name) == {"eos_token_id": [3, 5], "pad_token_id": 0}


def test_further_entries_of_the_config(small: Small, tmp_path: Path) -> None:
    labels = {"id2label": {str(i): f"class {i}" for i in range(5)}, "label2id": {f"class {i}": i for i in range(5)}}
    model = Transformer(override(small("bert-base"), [("head", SequenceClass(5))]))
    save_model(model, tmp_path / "x", extra_config={**labels, "transpect": {"anything": [1]}})
    config = json.loads((tmp_path / "x" / "config.json").read_text())
    assert config["id2label"] == labels["id2label"]
    assert load_model(tmp_path / "x").config.head == SequenceClass(5)


@pytest.mark.parametrize("extra", [{"n_head": 4}, {"vocab_size": 98}, {"model_type": "llama"}], ids=str)
def test_further_entries_do_not_contradict_the_model(extra: dict[str, Any], small: Small, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        save_model(Transformer(small("gpt2")), tmp_path / "x", extra_config=extra)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["gpt2", "gpt1"])
def test_what_could_not_be_read_again_is_not_written(name: str, small: Small, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nonsense"):
        save_model(Transformer(small(name)), tmp_path / "x", extra_config={"nonsense": 1})
    with pytest.raises(CheckpointError, match="plain data"):
        save_model(Transformer(small(name)), tmp_path / "x", generation={"stop": {1, 2}})
    assert list(tmp_path.iterdir()) == []


def test_other_files_of_a_replaced_directory_stay_and_old_weights_go(small: Small, tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    others = ("tokenizer.json", "notes.txt")
    stale = (
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "certificate.json",
    )
    for name in (*others, *stale):
        (folder / name).write_text("x")
    save_model(Transformer(small("gpt2")), folder)
    save_model(Transformer(small("llama")), folder)
    ours = {"config.json", "generation_config.json", "model.safetensors"}
    assert {entry.name for entry in folder.iterdir()} == {*others, *ours}
    assert family_of(load_model(folder).config) == "llama"


def test_a_directory_of_directories_is_not_replaced(small: Small, tmp_path: Path) -> None:
    (tmp_path / "run" / "best").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="not replaced"):
        save_model(Transformer(small("gpt2")), tmp_path / "run")


def test_a_model_may_be_saved_over_the_file_it_is_mapped_from(small: Small, tmp_path: Path) -> None:
    save_model(Transformer(small("llama")).eval(), tmp_path / "x")
    model = load_model(tmp_path / "x")
    before = output(model)
    save_model(model, tmp_path / "x")
    assert torch.equal(output(model), before)
    assert torch.equal(output(load_model(tmp_path / "x")), before)


def test_a_run_directory_means_its_best_then_its_last(small: Small, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json, best/ or last/"):
        resolve(tmp_path)
    with pytest.raises(CheckpointError, match="no such checkpoint directory"):
        resolve(tmp_path / "nowhere")
    save_model(Transformer(small("gpt2")), tmp_path / "last")
    assert resolve(tmp_path) == tmp_path / "last"
    save_model(Transformer(small("gpt2")), tmp_path / "best")
    assert resolve(tmp_path) == tmp_path / "best" == resolve(tmp_path / "best")
    (tmp_path / "best").rename(tmp_path / ".best.old")  # its writer died between two renames
    assert resolve(tmp_path) == tmp_path / ".best.old"


def test_dtype_kernel_and_mode(small: Small, tmp_path: Path) -> None:
    cross = {"decoder.cross": {"n_heads": 2, "head_dim": 10}}
    save_model(Transformer(small("t5-small", **cross)), tmp_path / "x")
    model = load_model(tmp_path / "x", dtype="bf16", kernel="naive")
    assert not model.training
    assert all(parameter.dtype == torch.bfloat16 and parameter.requires_grad for parameter in model.parameters())
    stacks = [model.config.encoder, model.config.decoder]
    kernels = [stack.attention.kernel for stack in stacks] + [stacks[1].cross.kernel]
    assert kernels == [Naive()] * 3
    with pytest.raises(ConfigError, match="kernel"):
        load_model(tmp_path / "x", kernel="nonsense")
    with pytest.raises(ConfigError, match="dtype"):
        load_model(tmp_path / "x", dtype="nonsense")


def test_loaded_weights_train_and_leave_the_file_alone(small: Small, tmp_path: Path) -> None:
    save_model(Transformer(small("llama")), tmp_path / "x")
    before = (tmp_path / "x" / "model.safetensors").read_bytes()
    model = load_model(tmp_path / "x").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output(model).square().sum().backward()
    optimizer.step()
    assert (tmp_path / "x" / "model.safetensors").read_bytes() == before
    assert not torch.equal(load_model(tmp_path / "x").token.weight, model.token.weight)


def test_loading_takes_nothing_from_the_state_of_random_numbers(small: Small, tmp_path: Path) -> None:
    save_model(Transformer(small("gpt2")), tmp_path / "x")
    state = torch.get_rng_state()
    load_model(tmp_path / "x")
    assert torch.equal(torch.get_rng_state(), state)


def test_loading_waits_for_no_machinery_that_it_does_not_use(small: Small, tmp_path: Path) -> None:
    """To fill a blank model, torch would import its compiler and sympy, which takes longer than all the rest."""
    for name in ("t5-small", "gpt2"):
        save_model(Transformer(small(name)), tmp_path / name)
    script = f"""
import sys
from transpect.interop import load_model
for name in ("t5-small", "gpt2"):
    load_model({str(tmp_path)!r} + "/" + name, dtype="bf16")
print([name for name in ("torch._dynamo", "sympy", "transformers") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_file_says_what_other_tools_look_for(small: Small, tmp_path: Path) -> None:
    save_model(Transformer(small("gpt2")).to(torch.bfloat16), tmp_path / "x")
    config = json.loads((tmp_path / "x" / "config.json").read_text())
    assert config["model_type"] == "gpt2"
    assert config["architectures"] == ["GPT2LMHeadModel"]
    assert config["torch_dtype"] == "bfloat16"
    with safe_open(tmp_path / "x" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        names = set(file.keys())
    assert "transformer.h.1.attn.c_attn.weight" in names
    assert "lm_head.weight" not in names, "a tied head has no tensor of its own"


@pytest.mark.parametrize("family", ["llama", "mistral", "phi3"])
def test_a_model_is_saved_as_the_family_that_it_came_from(small: Small, tmp_path: Path, family: str) -> None:
    """Without windows and scalings these are the same models; a person's checkpoint keeps its name all the same."""
    config = replace(small("llama", n_heads=4), family=family)
    assert family_of(config) == family
    save_model(Transformer(config), tmp_path / "x")
    assert load_config(tmp_path / "x").family == family


def test_a_model_that_its_family_has_no_word_for_any_more_is_saved_with_a_warning(small: Small, tmp_path: Path) -> None:
    config = replace(small("gpt2", positions="t5"), family="gpt2")
    with pytest.warns(UserWarning, match="came as gpt2"):
        save_model(Transformer(config), tmp_path / "x")
    assert json.loads((tmp_path / "x" / "config.json").read_text())["model_type"] == "transpect"
