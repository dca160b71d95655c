"""Names of tensors and of options that checkpoints of early decoders have had, and what of them can't be built."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from transpect.base.errors import CheckpointError
from transpect.core import Transformer
from transpect.core.positions import Alibi
from transpect.interop import load_model, save_model
from transpect.interop.families import FAMILIES

Data = dict[str, Any]

TINY: dict[str, tuple[Data, str, tuple[str, ...]]] = {
    # options, the prefix that checkpoints may lack, and what some of them hold besides weights
    "gpt2": ({"n_embd": 12, "n_layer": 2, "n_head": 3}, "transformer.", ("h.0.attn.bias", "h.1.attn.masked_bias")),
    "openai-gpt": ({"n_embd": 12, "n_layer": 2, "n_head": 3}, "transformer.", ("h.0.attn.bias", "position_ids")),
    "ctrl": ({"n_embd": 12, "n_layer": 2, "n_head": 3, "dff": 20}, "transformer.", ()),
    "gptj": (
        {"n_embd": 12, "n_layer": 2, "n_head": 3, "rotary_dim": 2},
        "transformer.",
        ("h.0.attn.bias", "h.0.attn.masked_bias"),
    ),
    "gpt_neo": (
        {"hidden_size": 12, "num_layers": 2, "num_heads": 3, "attention_types": [[["global", "local"], 1]]},
        "transformer.",
        ("h.0.attn.attention.bias", "h.1.attn.attention.masked_bias"),
    ),
    "gpt_neox": (
        {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20},
        "gpt_neox.",
        ("layers.0.attention.bias", "layers.0.attention.masked_bias", "layers.1.attention.rotary_emb.inv_freq"),
    ),
    "opt": ({"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "ffn_dim": 20}, "model.", ()),
    "bloom": ({"n_embed": 12, "n_layer": 2, "num_attention_heads": 3}, "transformer.", ()),
    "mpt": ({"d_model": 12, "n_layers": 2, "n_heads": 3}, "transformer.", ()),
    "stablelm": (
        {
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "intermediate_size": 20,
        },
        "model.",
        ("layers.0.self_attn.rotary_emb.inv_freq",),
    ),
    "starcoder2": (
        {
            "hidden_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "intermediate_size": 20,
        },
        "model.",
        (),
    ),
}


def tiny(model_type: str) -> Transformer:
    return Transformer(FAMILIES[model_type].read({**TINY[model_type][0], "vocab_size": 17}))


@pytest.mark.parametrize("tied_copy", [False, True], ids=["", "tied-copy"])
@pytest.mark.parametrize("bare", [False, True], ids=["", "bare"])
@pytest.mark.parametrize("model_type", TINY)
def test_names_of_other_days_are_read(model_type: str, bare: bool, tied_copy: bool, tmp_path: Path) -> None:
    """With or without prefix, with saved masks and frequencies, with or without a copy of a tied head."""
    net, (_, prefix, besides) = tiny(model_type), TINY[model_type]
    save_model(net, tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    if tied_copy:
        aliases = FAMILIES[model_type].table(net.config).aliases
        tensors |= {alias.theirs: tensors[alias.of].clone() for alias in aliases}
    tensors |= {prefix + name: torch.ones(3) for name in besides}
    if bare:
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    save_file(tensors, file)
    again = load_model(tmp_path).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize("model_type", TINY)
def test_a_tensor_that_nobody_knows_is_refused(model_type: str, tmp_path: Path) -> None:
    net, (_, prefix, _) = tiny(model_type), TINY[model_type]
    save_model(net, tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), f"{prefix}surprise.weight": torch.ones(3)}, file)
    with pytest.raises(CheckpointError, match=r"surprise\.weight"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("model_type", "option", "value"),
    [
        ("bloom", "n_inner", 20),
        ("mpt", "attn_config", {"qk_ln": True}),
        ("mpt", "attn_config", {"alibi": False}),
        ("mpt", "attn_config", {"attn_type": "grouped_query_attention"}),
        ("mpt", "attn_config", {"attn_type": "multiquery_attention", "kv_n_heads": 3}),
        ("mpt", "attn_config", {"attn_type": "linear"}),
        ("mpt", "attn_config", {"rope": True}),
        ("mpt", "logit_scale", 0.5),
        ("mpt", "norm_type", "rmsnorm"),
        ("gptj", "rotary_dim", None),
        ("gptj", "rotary_dim", 64),
        ("gpt_neo", "attention_types", [[["global", "sparse"], 1]]),
        ("gpt_neo", "attention_types", [[["global"], 3]]),
        ("gpt_neo", "attention_layers", ["local", "local"]),
        ("gpt_neox", "rope_scaling", {"surprise": 1, "rope_type": "linear", "factor": 2.0}),
        ("ctrl", "layer_norm_epsilon", 1e-5),
        ("stablelm", "hidden_dropout", 0.1),
        ("starcoder2", "mlp_type", "gated"),
        ("starcoder2", "sliding_window", 0),
        ("gpt2", "hidden_size", 16),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(model_type: str, option: str, value: Any) -> None:
    word = next(iter(value)) if isinstance(value, dict) else option.removesuffix("_layers")
    with pytest.raises(CheckpointError, match=word):
        FAMILIES[model_type].read({**TINY[model_type][0], option: value})


def test_opt_for_classes_does_not_take_narrow_token_vectors() -> None:
    data = {**TINY["opt"][0], "word_embed_proj_dim": 5, "architectures": ["OPTForSequenceClassification"]}
    with pytest.raises(CheckpointError, match="word_embed_proj_dim"):
        FAMILIES["opt"].read(data)


@pytest.mark.parametrize(
    "options",
    [
        {"attn_config": {"alibi_bias_max": 16, "clip_qkv": 6}},
        {"no_bias": False},
        {"n_heads": 4, "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2}},
        {"attn_config": {"attn_type": "multiquery_attention"}},
        {"expansion_ratio": 3},
    ],
    ids=str,
)
def test_what_transformers_drops_of_mpt_is_kept(options: Data, tmp_path: Path) -> None:
    """It reads these options and computes without them; a model that has them is not handed to it as if it had not."""
    net = Transformer(FAMILIES["mpt"].read({**TINY["mpt"][0], "vocab_size": 17, **options}))
    usual = tiny("mpt")
    assert net.config != usual.config
    save_model(net, tmp_path)
    again = load_model(tmp_path)
    assert again.config.decoder == net.config.decoder
    ids = torch.arange(17)[None]
    assert torch.equal(again(ids), net.eval()(ids))


def test_mpt_that_brings_its_own_code_reaches_far() -> None:
    """The storywriter: slopes down to 2^-16, projections held within 6, 65536 tokens."""
    data = {
        "architectures": ["MPTForCausalLM"],
        "attn_config": {
            "alibi": True,
            "alibi_bias_max": 16,
            "attn_impl": "torch",
            "attn_pdrop": 0,
            "attn_type": "multihead_attention",
            "attn_uses_sequence_id": False,
            "clip_qkv": 6,
            "prefix_lm": False,
            "qk_ln": False,
            "softmax_scale": None,
        },
        "auto_map": {
            "AutoConfig": "configuration_mpt.MPTConfig",
            "AutoModelForCausalLM": "modeling_mpt.MPTForCausalLM",
        },
        "d_model": 4096,
        "emb_pdrop": 0,
        "embedding_fraction": 1.0,
        "expansion_ratio": 4,
        "init_config": {"name": "kaiming_normal_"},
        "init_device": "cpu",
        "learned_pos_emb": True,
        "logit_scale": None,
        "max_seq_len": 65536,
        "model_type": "mpt",
        "n_heads": 32,
        "n_layers": 32,
        "no_bias": True,
        "norm_type": "low_precision_layernorm",
        "resid_pdrop": 0,
        "verbose": 0,
        "vocab_size": 50432,
    }
    config = FAMILIES["mpt"].read(data)
    assert config.decoder is not None
    assert config.decoder.positions == Alibi(bias_max=16)
    assert config.decoder.attention.clip == 6
    assert config.context_length == 65536


def test_bloom_is_a_language_model_under_its_first_name(tmp_path: Path) -> None:
    """The big ones say that they are a ``BloomModel``, and their tensors have no prefix."""
    net = tiny("bloom")
    save_model(net, tmp_path)
    data = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**data, "architectures": ["BloomModel"]}))
    file = tmp_path / "model.safetensors"
    save_file({name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}, file)
    ids = torch.arange(17)[None]
    assert torch.equal(load_model(tmp_path)(ids), net.eval()(ids))
