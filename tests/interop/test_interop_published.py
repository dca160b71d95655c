"""Published config.json files, as their makers wrote them, mean the models that they are known to be."""

from typing import Any

import pytest

from transpect.core import ModelConfig, override, preset
from transpect.core.positions import Llama3Scaling, Rope
from transpect.interop.families import FAMILIES
from transpect.interop.family import canonical

GPT2: dict[str, Any] = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
BERT: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 30522,
}
T5: dict[str, Any] = {
    "architectures": ["T5WithLMHeadModel"],
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 512,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "n_positions": 512,
    "num_heads": 8,
    "num_layers": 6,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "task_specific_params": {"summarization": {"num_beams": 4, "prefix": "summarize: "}},
    "vocab_size": 32128,
}
T5_V1_1: dict[str, Any] = {
    **T5,
    "architectures": ["T5ForConditionalGeneration"],
    "d_ff": 1024,
    "feed_forward_proj": "gated-gelu",
    "num_decoder_layers": 8,
    "num_heads": 6,
    "num_layers": 8,
    "tie_word_embeddings": False,
}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.28.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
LLAMA_3_1: dict[str, Any] = {
    **LLAMA,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "eos_token_id": [128001, 128008, 128009],
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}
SMOL: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "vocab_size": 49152,
}


def llama(*changes: tuple[str, Any]) -> ModelConfig:
    return override(preset("llama"), changes)


GATED = {"kind": "glu", "act": "gelu_tanh", "bias": False, "d_ff": 1024, "dropout": 0.1}
PUBLISHED = {
    "gpt2": (GPT2, preset("gpt2")),
    "bert-base": (BERT, preset("bert-base")),
    "t5-small": (T5, preset("t5-small")),
    "t5-v1.1-small": (
        T5_V1_1,
        override(
            preset("t5-small"),
            [("n_layers", 8), ("n_heads", 6), ("ffn", GATED), ("head", {"kind": "causal_lm", "tied": False})],
        ),
    ),
    "llama-7b": (LLAMA, preset("llama")),
    "llama-3.1-8b": (
        LLAMA_3_1,
        llama(
            ("vocab_size", 128256),
            ("context_length", 131072),
            ("n_kv_heads", 8),
            ("d_ff", 14336),
            ("norm.eps", 1e-5),
            ("positions", Rope(theta=5e5, scaling=Llama3Scaling())),
        ),
    ),
    "smollm2-135m": (
        SMOL,
        llama(
            ("vocab_size", 49152),
            ("d_model", 576),
            ("context_length", 8192),
            ("n_layers", 30),
            ("n_heads", 9),
            ("n_kv_heads", 3),
            ("d_ff", 1536),
            ("positions.theta", 1e5),
            ("head.tied", True),
        ),
    ),
}


@pytest.mark.parametrize(("data", "config"), PUBLISHED.values(), ids=list(PUBLISHED))
def test_a_published_config_is_the_model_that_it_is_known_to_be(data: dict[str, Any], config: ModelConfig) -> None:
    family = FAMILIES[data["model_type"]]
    assert canonical(family.read(data)) == canonical(config)
    written = family.write(config)
    assert written is not None
    for name in written.keys() & data.keys() - {"architectures", "rope_scaling"}:
        assert written[name] == data[name], name


def test_dropout_is_that_of_the_paper() -> None:
    """A preset and the config that was published for it agree on what fine-tuning needs, too."""
    for data, config in (PUBLISHED[name] for name in ("gpt2", "t5-small")):
        read = FAMILIES[data["model_type"]].read(data)
        assert read.embedding == config.embedding
        for name, stack in config.towers.items():
            assert read.towers[name].dropout == stack.dropout
            assert read.towers[name].attention.dropout == stack.attention.dropout
            assert read.towers[name].ffn.dropout == stack.ffn.dropout
