"""config.json files of early decoders, as their makers wrote them."""

from typing import Any

import pytest
import torch
import transformers

from transpect.base.codec import to_data
from transpect.interop.blank import shapes
from transpect.interop.families import FAMILIES
from transpect.interop.options import at

Data = dict[str, Any]

ATTENTION = "decoder.attention"
GPT_SUMMARY: Data = {"summary_activation": None, "summary_first_dropout": 0.1, "summary_type": "cls_index"}
GPT_SUMMARY |= {"summary_proj_to_labels": True, "summary_use_proj": True}
OPENAI: Data = {
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "n_special": 0,
    "predict_special_tokens": True,
    "resid_pdrop": 0.1,
    **GPT_SUMMARY,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}
# each with what it is known to be, at places of our config
PUBLISHED: dict[str, tuple[Data, Data]] = {
    "gpt2-medium": (
        {
            "activation_function": "gelu_new",
            "architectures": ["GPT2LMHeadModel"],
            "bos_token_id": 50256,
            "eos_token_id": 50256,
            "model_type": "gpt2",
            "n_ctx": 1024,
            "n_embd": 1024,
            "n_head": 16,
            "n_layer": 24,
            "n_positions": 1024,
            **OPENAI,
            "vocab_size": 50257,
        },
        {"d_model": 1024, "decoder.n_layers": 24, f"{ATTENTION}.n_heads": 16, "context_length": 1024},
    ),
    "openai-gpt": (
        {
            "afn": "gelu",
            "architectures": ["OpenAIGPTLMHeadModel"],
            "model_type": "openai-gpt",
            "n_ctx": 512,
            "n_embd": 768,
            "n_head": 12,
            "n_layer": 12,
            "n_positions": 512,
            **OPENAI,
            "vocab_size": 40478,
        },
        {"decoder.placement.kind": "post", "decoder.ffn.act": "gelu_tanh", "head.tied": True},
    ),
    "gpt-neox-20b": (
        {
            "architectures": ["GPTNeoXForCausalLM"],
            "attention_probs_dropout_prob": 0,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "hidden_act": "gelu_fast",
            "hidden_dropout_prob": 0,
            "hidden_size": 6144,
            "initializer_range": 0.02,
            "intermediate_size": 24576,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 2048,
            "model_type": "gpt_neox",
            "num_attention_heads": 64,
            "num_hidden_layers": 44,
            "rotary_emb_base": 10000,
            "rotary_pct": 0.25,
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
            "transformers_version": "4.19.0.dev0",
            "use_cache": True,
            "vocab_size": 50432,
        },
        {"decoder.steps": [["self", "ffn"]], "decoder.shared_norm": False, "decoder.positions.fraction": 0.25},
    ),
    "gpt-j-6b": (
        {
            "activation_function": "gelu_new",
            "architectures": ["GPTJForCausalLM"],
            "attn_pdrop": 0.0,
            "bos_token_id": 50256,
            "embd_pdrop": 0.0,
            "eos_token_id": 50256,
            "gradient_checkpointing": False,
            "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-05,
            "model_type": "gptj",
            "n_embd": 4096,
            "n_head": 16,
            "n_inner": None,
            "n_layer": 28,
            "n_positions": 2048,
            "resid_pdrop": 0.0,
            "rotary": True,
            "rotary_dim": 64,
            "scale_attn_weights": True,
            **GPT_SUMMARY,
            "tie_word_embeddings": False,
            "tokenizer_class": "GPT2Tokenizer",
            "transformers_version": "4.18.0.dev0",
            "use_cache": True,
            "vocab_size": 50400,
        },
        {"decoder.shared_norm": True, "decoder.positions.fraction": 0.25, "decoder.positions.interleaved": True},
    ),
    "gpt-neo-tiny-stories": (
        {
            "architectures": ["GPTNeoForCausalLM"],
            "activation_function": "gelu_new",
            "attention_dropout": 0,
            "attention_layers": ["global", "local"] * 4,
            "attention_types": [[["global", "local"], 4]],
            "bos_token_id": 50256,
            "embed_dropout": 0,
            "eos_token_id": 50256,
            "intermediate_size": None,
            "layer_norm_epsilon": 1e-5,
            "max_position_embeddings": 2048,
            "model_type": "gpt_neo",
            "hidden_size": 64,
            "num_layers": 8,
            "num_heads": 16,
            "resid_dropout": 0,
            "torch_dtype": "float32",
            "use_cache": True,
            "vocab_size": 50257,
            "window_size": 256,
        },
        {
            f"{ATTENTION}.scale": 1.0,
            "decoder.visibility.kind": "causal",
            "decoder.others": [
                {
                    "at": [1, 3, 5, 7],
                    "visibility": {"kind": "window", "width": 256, "both_ways": False, "dilation": 1},
                    **dict.fromkeys(("attention", "ffn", "positions")),
                }
            ],
        },
    ),
    "opt-350m": (
        {
            "_name_or_path": "opt-350m",
            "activation_dropout": 0.0,
            "activation_function": "relu",
            "architectures": ["OPTForCausalLM"],
            "attention_dropout": 0.0,
            "bos_token_id": 2,
            "do_layer_norm_before": False,
            "dropout": 0.1,
            "eos_token_id": 2,
            "ffn_dim": 4096,
            "hidden_size": 1024,
            "init_std": 0.02,
            "layerdrop": 0.0,
            "max_position_embeddings": 2048,
            "model_type": "opt",
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "pad_token_id": 1,
            "prefix": "</s>",
            "torch_dtype": "float16",
            "transformers_version": "4.20.0.dev0",
            "use_cache": True,
            "vocab_size": 50272,
            "word_embed_proj_dim": 512,
        },
        {"decoder.placement.kind": "post", "decoder.final_norm": False, "embedding.factor.width": 512},
    ),
    "bloom-560m": (
        {
            "apply_residual_connection_post_layernorm": False,
            "architectures": ["BloomForCausalLM"],
            "attention_dropout": 0.0,
            "attention_softmax_in_fp32": True,
            "bias_dropout_fusion": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_dropout": 0.0,
            "initializer_range": 0.02,
            "layer_norm_epsilon": 1e-05,
            "masked_softmax_fusion": True,
            "model_type": "bloom",
            "n_embed": 1024,
            "n_inner": None,
            "n_layer": 24,
            "num_attention_heads": 16,
            "offset_alibi": 100,
            "pad_token_id": 3,
            "pretraining_tp": 1,
            "seq_length": 2048,
            "skip_bias_add": True,
            "skip_bias_add_qkv": False,
            "unk_token_id": 0,
            "use_cache": True,
            "vocab_size": 250880,
        },
        {"d_model": 1024, f"{ATTENTION}.n_heads": 16, "decoder.positions.kind": "alibi", "head.tied": True},
    ),
    "starcoder2-3b": (
        {
            "activation_function": "gelu",
            "architectures": ["Starcoder2ForCausalLM"],
            "attention_dropout": 0.1,
            "attention_softmax_in_fp32": True,
            "bos_token_id": 0,
            "embedding_dropout": 0.1,
            "eos_token_id": 0,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": 3072,
            "initializer_range": 0.018042,
            "intermediate_size": 12288,
            "layer_norm_epsilon": 1e-05,
            "max_position_embeddings": 16384,
            "mlp_type": "default",
            "model_type": "starcoder2",
            "norm_epsilon": 1e-05,
            "norm_type": "layer_norm",
            "num_attention_heads": 24,
            "num_hidden_layers": 30,
            "num_key_value_heads": 2,
            "residual_dropout": 0.1,
            "rope_theta": 999999.4420358813,
            "scale_attention_softmax_in_fp32": True,
            "scale_attn_weights": True,
            "sliding_window": 4096,
            "torch_dtype": "bfloat16",
            "use_bias": True,
            "use_cache": True,
            "vocab_size": 49152,
        },
        {f"{ATTENTION}.n_kv_heads": 2, "decoder.visibility.width": 4096, "decoder.ffn.act": "gelu_tanh"},
    ),
    "stablelm-3b": (
        {
            "architectures": ["StableLmForCausalLM"],
            "bos_token_id": 0,
            "eos_token_id": 0,
            "hidden_act": "silu",
            "hidden_size": 2560,
            "initializer_range": 0.02,
            "intermediate_size": 6912,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 4096,
            "model_type": "stablelm",
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 32,
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "use_qkv_bias": False,
            "vocab_size": 50304,
        },
        {"decoder.positions.fraction": 0.25, f"{ATTENTION}.qkv_bias": False, "decoder.norm.kind": "layernorm"},
    ),
}


def there(data: Data) -> dict[str, torch.Size]:
    """The tensors that `transformers` gives a model of this config, allocated nowhere."""
    config = transformers.AutoConfig.for_model(**data)
    with torch.device("meta"):
        model = getattr(transformers, data["architectures"][0])(config)
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_describes_the_tensors_that_it_is_known_to_have(name: str) -> None:
    data, facts = PUBLISHED[name]
    family = FAMILIES[data["model_type"]]
    config = family.read(data)
    ours = to_data(config)
    assert {place: at(ours, place) for place in facts} == facts
    named = shapes(config)
    mine = {
        item.theirs: item.layout.shapes([named[part] for part in item.ours])[0]
        for item in family.links(config, named, bare=False)
    }
    aliases = {alias.theirs: alias.of for alias in family.table(config).aliases}
    theirs = there(data)
    if data["model_type"] == "gpt_neox":  # the name of its head in files is the older one
        theirs["embed_out.weight"] = theirs.pop("lm_head.weight")
    assert {name: shape for name, shape in theirs.items() if name not in aliases} == mine
