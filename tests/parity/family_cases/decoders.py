"""Decoders from Llama on."""

from typing import Any

from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma2ForTokenClassification,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    Gemma3TextModel,
    GemmaConfig,
    GemmaForCausalLM,
    GemmaForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    LlamaModel,
    MinistralConfig,
    MinistralForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MistralForSequenceClassification,
    MistralModel,
    MixtralConfig,
    MixtralForCausalLM,
    MixtralForSequenceClassification,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo2ForSequenceClassification,
    OlmoConfig,
    OlmoForCausalLM,
    OlmoForSequenceClassification,
    OlmoModel,
    Phi3Config,
    Phi3ForCausalLM,
    Phi3ForTokenClassification,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    SmolLM3ForSequenceClassification,
)

from family_cases.base import IDS, Case, Options

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


def longrope(pairs: int, **options: Any) -> Options:
    """Scaling of so many pairs of dimensions."""
    numbers = [1.0 + 0.3 * i for i in range(pairs)]
    factors = {"short_factor": numbers, "long_factor": [3.0 * number for number in numbers]}
    return {"rope_scaling": {"type": "longrope", **factors, **options}}


YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FIVE: Options = {**LLAMA, "num_hidden_layers": 5}
LATE_WINDOWS: Options = {"use_sliding_window": True, "sliding_window": 11, "max_window_layers": 3}
FULL, SLIDING = "full_attention", "sliding_attention"
TYPES = [SLIDING, FULL, SLIDING, SLIDING, FULL]
TYPED: Options = {"use_sliding_window": True, "sliding_window": 7, "layer_types": TYPES}
EXPERTS: Options = {
    **LLAMA,
    "head_dim": 10,
    "num_experts": 5,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 28,  # theirs wants rows of whole 16 bytes
}
WINDOW: Options = {**LLAMA, "sliding_window": 11}
# heads of 10 numbers in a model of 48
GEMMA: Options = {**LLAMA, "head_dim": 10, "num_key_value_heads": 3}
GEMMA2: Options = {**GEMMA, "num_hidden_layers": 5, "sliding_window": 9, "query_pre_attn_scalar": 23}
CAPS: Options = {"attn_logit_softcapping": 0.3, "final_logit_softcapping": 0.5}
GEMMA3: Options = {**GEMMA2, "num_hidden_layers": 7}
VISION: Options = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
IMAGE_TOKENS: Options = {
    "image_token_index": 97,
    "boi_token_index": 98,
    "eoi_token_index": 99,
    "mm_tokens_per_image": 4,
}
BY_TYPE: Options = {
    FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
    SLIDING: {"rope_type": "yarn", **YARN, "rope_theta": 300.0},
}

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
    Case(
        "llama-longrope",
        LlamaConfig,
        LlamaForCausalLM,
        {**LLAMA, **longrope(4, factor=4.0, original_max_position_embeddings=16)},
    ),
    Case("llama-classes", LlamaConfig, LlamaForSequenceClassification, {**LLAMA, "num_labels": 5}),
    Case("llama-token-classes", LlamaConfig, LlamaForTokenClassification, {**LLAMA, "num_labels": 5}),
    Case("llama-body", LlamaConfig, LlamaModel, LLAMA),
    Case("qwen2", Qwen2Config, Qwen2ForCausalLM, {**LLAMA, "tie_word_embeddings": True}),
    Case("qwen2-windows", Qwen2Config, Qwen2ForCausalLM, {**FIVE, **LATE_WINDOWS}),
    Case("qwen2-typed", Qwen2Config, Qwen2ForCausalLM, {**FIVE, **TYPED}),
    Case("qwen2-yarn", Qwen2Config, Qwen2ForCausalLM, scaled("yarn", **YARN)),
    Case("qwen3", Qwen3Config, Qwen3ForCausalLM, {**LLAMA, "head_dim": 10, "num_key_value_heads": 3}),
    Case(
        "qwen3-windows",
        Qwen3Config,
        Qwen3ForCausalLM,
        {**FIVE, **LATE_WINDOWS, "head_dim": 8, "attention_bias": True, "rms_norm_eps": 1e-2},
    ),
    Case(
        "qwen3-classes",
        Qwen3Config,
        Qwen3ForSequenceClassification,
        {**FIVE, **TYPED, "head_dim": 10, "num_labels": 5},
    ),
    Case("gemma", GemmaConfig, GemmaForCausalLM, GEMMA),
    Case(
        "gemma-untied",
        GemmaConfig,
        GemmaForCausalLM,
        {
            **GEMMA,
            "tie_word_embeddings": False,
            "attention_bias": True,
            "rms_norm_eps": 1e-2,
            "hidden_act": "gelu",
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 300.0},
        },
    ),
    Case("gemma-classes", GemmaConfig, GemmaForSequenceClassification, {**GEMMA, "num_labels": 5}),
    Case("gemma2", Gemma2Config, Gemma2ForCausalLM, {**GEMMA2, **CAPS}),
    Case(
        "gemma2-typed",
        Gemma2Config,
        Gemma2ForCausalLM,
        {
            **GEMMA2,
            "layer_types": TYPES,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "query_pre_attn_scalar": 10,
            "hidden_activation": "silu",
        },
    ),
    Case("gemma2-token-classes", Gemma2Config, Gemma2ForTokenClassification, {**GEMMA2, **CAPS, "num_labels": 5}),
    Case("gemma3", Gemma3TextConfig, Gemma3ForCausalLM, GEMMA3),
    Case(
        "gemma3-scaled",
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {
            **GEMMA3,
            "sliding_window_pattern": 3,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "rope_theta": 1000.0,
            "rope_local_base_freq": 50.0,
            "final_logit_softcapping": 0.7,
            "rms_norm_eps": 1e-2,
        },
    ),
    Case(
        "gemma3-by-type",
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        {**GEMMA2, "layer_types": TYPES, "rope_parameters": BY_TYPE, "tie_word_embeddings": False},
    ),
    Case("gemma3-body", Gemma3TextConfig, Gemma3TextModel, GEMMA3),
    Case("gemma3-both-ways", Gemma3TextConfig, Gemma3TextModel, {**GEMMA3, "use_bidirectional_attention": True}),
    # its text alone; in memory they call it otherwise than in a file
    Case(
        "gemma3-with-images",
        Gemma3Config,
        Gemma3ForConditionalGeneration,
        {"text_config": {**GEMMA3, **IDS}, "vision_config": VISION, **IMAGE_TOKENS},
        generates=False,
        memory=(("language_model.model.", "model.language_model."), ("language_model.lm_head", "lm_head")),
    ),
    Case("mistral", MistralConfig, MistralForCausalLM, {**LLAMA, "head_dim": 10, "sliding_window": 11}),
    Case("mistral-no-window", MistralConfig, MistralForCausalLM, {**LLAMA, "sliding_window": None}),
    Case("mistral-classes", MistralConfig, MistralForSequenceClassification, {**WINDOW, "num_labels": 5}),
    Case("mistral-body", MistralConfig, MistralModel, WINDOW),
    Case(
        "ministral",
        MinistralConfig,
        MinistralForCausalLM,
        {**FIVE, "head_dim": 10, "sliding_window": 7, "layer_types": TYPES},
    ),
    Case("phi3", Phi3Config, Phi3ForCausalLM, {**WINDOW, "rms_norm_eps": 1e-2}),
    Case("phi3-no-window", Phi3Config, Phi3ForCausalLM, LLAMA),
    Case(
        "phi3-partial",
        Phi3Config,
        Phi3ForCausalLM,
        {**LLAMA, "partial_rotary_factor": 0.5, "num_key_value_heads": 3, "tie_word_embeddings": True},
    ),
    Case("phi3-long", Phi3Config, Phi3ForCausalLM, {**LLAMA, **longrope(4), "original_max_position_embeddings": 16}),
    Case(
        "phi3-short",
        Phi3Config,
        Phi3ForCausalLM,
        {
            **LLAMA,
            **longrope(3, attention_factor=1.7),
            "original_max_position_embeddings": 61,
            "partial_rotary_factor": 0.75,
        },
    ),
    Case("phi3-token-classes", Phi3Config, Phi3ForTokenClassification, {**WINDOW, "num_labels": 5}),
    Case("olmo", OlmoConfig, OlmoForCausalLM, LLAMA),
    Case(
        "olmo-clipped-biased-tied",
        OlmoConfig,
        OlmoForCausalLM,
        {**LLAMA, "clip_qkv": 0.3, "attention_bias": True, "tie_word_embeddings": True},
    ),
    Case("olmo-classes", OlmoConfig, OlmoForSequenceClassification, {**LLAMA, "num_labels": 5}),
    Case("olmo-body", OlmoConfig, OlmoModel, LLAMA),
    Case("olmo2", Olmo2Config, Olmo2ForCausalLM, {**LLAMA, "num_key_value_heads": 3}),
    Case(
        "olmo2-biased-tied",
        Olmo2Config,
        Olmo2ForCausalLM,
        {**LLAMA, "attention_bias": True, "tie_word_embeddings": True, "rms_norm_eps": 1e-2},
    ),
    Case("olmo2-classes", Olmo2Config, Olmo2ForSequenceClassification, {**LLAMA, "num_labels": 5}),
    Case("smollm3", SmolLM3Config, SmolLM3ForCausalLM, FIVE),
    Case(
        "smollm3-windows",
        SmolLM3Config,
        SmolLM3ForCausalLM,
        {
            **FIVE,
            "no_rope_layer_interval": 2,
            "use_sliding_window": True,
            "sliding_window": 9,
            "mlp_bias": True,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
    ),
    Case(
        "smollm3-listed",
        SmolLM3Config,
        SmolLM3ForCausalLM,
        {**scaled("yarn", **YARN), **FIVE, **TYPED, "no_rope_layers": [0, 1, 0, 0, 1]},
    ),
    Case("smollm3-classes", SmolLM3Config, SmolLM3ForSequenceClassification, {**FIVE, "num_labels": 5}),
    Case("mixtral", MixtralConfig, MixtralForCausalLM, {**LLAMA, "num_local_experts": 5}),
    Case(
        "mixtral-windows",
        MixtralConfig,
        MixtralForCausalLM,
        {
            **WINDOW,
            "num_local_experts": 4,
            "num_experts_per_tok": 3,
            "head_dim": 10,
            "hidden_act": "gelu",
            "tie_word_embeddings": True,
        },
    ),
    Case(
        "mixtral-classes",
        MixtralConfig,
        MixtralForSequenceClassification,
        {**LLAMA, "num_local_experts": 3, "num_experts_per_tok": 1, "num_labels": 5},
    ),
    Case("qwen3-moe", Qwen3MoeConfig, Qwen3MoeForCausalLM, EXPERTS),
    Case(
        "qwen3-moe-some-dense",
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        {
            **EXPERTS,
            "num_hidden_layers": 5,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "norm_topk_prob": True,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 11,
            "rms_norm_eps": 1e-2,
        },
    ),
]
