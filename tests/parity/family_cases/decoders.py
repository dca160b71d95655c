"""Decoders from Llama on."""

from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from family_cases.base import Case, Options

LLAMA: Options = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 60,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def scaled(rope_type: str, **options: Any) -> Options:
    return {**LLAMA, "rope_parameters": {"rope_type": rope_type, "rope_theta": 1000.0, **options}}


YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


CASES = [
    Case("llama", LlamaConfig, LlamaForCausalLM, LLAMA),
    Case(
        "llama-biased-tied",
        LlamaConfig,
        LlamaForCausalLM,
        {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu_new"},
    ),
    Case(
        "llama-wide-heads",
        LlamaConfig,
        LlamaForCausalLM,
        {**LLAMA, "head_dim": 10, "num_key_value_heads": 3, "rms_norm_eps": 1e-2},
    ),
    Case("llama-linear", LlamaConfig, LlamaForCausalLM, scaled("linear", factor=4.0)),
    Case(
        "llama-dynamic",
        LlamaConfig,
        LlamaForCausalLM,
        {**scaled("dynamic", factor=4.0), "max_position_embeddings": 16},
        generates=False,  # there the base grows under the cached keys; here the final length is stated first
    ),
    Case("llama-yarn", LlamaConfig, LlamaForCausalLM, scaled("yarn", **YARN)),
    Case(
        "llama-yarn-mscale",
        LlamaConfig,
        LlamaForCausalLM,
        scaled("yarn", **YARN, mscale=0.7, mscale_all_dim=0.4, beta_fast=8.0, beta_slow=0.1, truncate=False),
    ),
    Case("llama-llama3", LlamaConfig, LlamaForCausalLM, scaled("llama3", **LLAMA3)),
    Case("llama-classes", LlamaConfig, LlamaForSequenceClassification, {**LLAMA, "num_labels": 5}),
]
