"""Decoders of the years around Llama that are not of its kind: OPT, BLOOM, MPT, StableLM, StarCoder 2."""

from transformers import (
    BloomConfig,
    BloomForCausalLM,
    BloomForSequenceClassification,
    BloomForTokenClassification,
    MptConfig,
    MptForCausalLM,
    MptForSequenceClassification,
    MptForTokenClassification,
    MptModel,
    OPTConfig,
    OPTForCausalLM,
    OPTForSequenceClassification,
    OPTModel,
    StableLmConfig,
    StableLmForCausalLM,
    StableLmForSequenceClassification,
    StableLmForTokenClassification,
    StableLmModel,
    Starcoder2Config,
    Starcoder2ForCausalLM,
    Starcoder2ForSequenceClassification,
    Starcoder2ForTokenClassification,
    Starcoder2Model,
)

from family_cases.base import Case, Options

OPT: Options = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "ffn_dim": 60,
    "max_position_embeddings": 64,
}
BLOOM: Options = {"vocab_size": 97, "hidden_size": 48, "n_layer": 3, "n_head": 6}
MPT: Options = {"vocab_size": 97, "d_model": 48, "n_layers": 3, "n_heads": 6, "max_seq_len": 64}
STABLELM: Options = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 60,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
STARCODER2: Options = {**STABLELM, "num_key_value_heads": 3, "sliding_window": 7}

CASES = [
    Case("opt", OPTConfig, OPTForCausalLM, OPT),
    Case(
        "opt-post-narrow",
        OPTConfig,
        OPTForCausalLM,
        {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 20, "enable_bias": False},
        narrows=True,
    ),
    Case(
        "opt-narrow-untied",
        OPTConfig,
        OPTForCausalLM,
        {**OPT, "word_embed_proj_dim": 20, "tie_word_embeddings": False},
        narrows=True,
    ),
    Case(
        "opt-no-final-norm",
        OPTConfig,
        OPTForCausalLM,
        {
            **OPT,
            "_remove_final_layer_norm": True,
            "layer_norm_elementwise_affine": False,
            "activation_function": "gelu",
        },
        narrows=True,
    ),
    Case("opt-classes", OPTConfig, OPTForSequenceClassification, {**OPT, "num_labels": 5}),
    Case("bloom", BloomConfig, BloomForCausalLM, BLOOM),
    Case(
        "bloom-untied",
        BloomConfig,
        BloomForCausalLM,
        {**BLOOM, "n_head": 3, "layer_norm_epsilon": 1e-2, "tie_word_embeddings": False},
    ),
    Case(
        "bloom-normed-stream",
        BloomConfig,
        BloomForCausalLM,
        {**BLOOM, "apply_residual_connection_post_layernorm": True},
    ),
    Case("bloom-classes", BloomConfig, BloomForSequenceClassification, {**BLOOM, "num_labels": 5}),
    Case("bloom-token-classes", BloomConfig, BloomForTokenClassification, {**BLOOM, "num_labels": 5}),
    Case("mpt", MptConfig, MptForCausalLM, MPT),
    Case(
        "mpt-clipped",
        MptConfig,
        MptForCausalLM,
        {**MPT, "n_heads": 3, "layer_norm_epsilon": 1e-2, "attn_config": {"clip_qkv": 0.3, "softmax_scale": 0.5}},
    ),
    Case("mpt-classes", MptConfig, MptForSequenceClassification, {**MPT, "num_labels": 5}),
    Case("mpt-token-classes", MptConfig, MptForTokenClassification, {**MPT, "num_labels": 5}),
    Case("stablelm", StableLmConfig, StableLmForCausalLM, STABLELM),
    Case(
        "stablelm-2-12b",
        StableLmConfig,
        StableLmForCausalLM,
        {
            **STABLELM,
            "use_parallel_residual": True,
            "qk_layernorm": True,
            "partial_rotary_factor": 0.5,
            "layer_norm_eps": 1e-2,
        },
    ),
    Case(
        "stablelm-biased-tied",
        StableLmConfig,
        StableLmForCausalLM,
        {
            **STABLELM,
            "use_qkv_bias": True,
            "qk_layernorm": True,
            "tie_word_embeddings": True,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        },
    ),
    Case("stablelm-classes", StableLmConfig, StableLmForSequenceClassification, {**STABLELM, "num_labels": 5}),
    Case("stablelm-token-classes", StableLmConfig, StableLmForTokenClassification, {**STABLELM, "num_labels": 5}),
    Case("starcoder2", Starcoder2Config, Starcoder2ForCausalLM, STARCODER2),
    Case(
        "starcoder2-untied",
        Starcoder2Config,
        Starcoder2ForCausalLM,
        {
            **STARCODER2,
            "use_bias": False,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "norm_epsilon": 1e-2,
            "hidden_act": "relu",
        },
    ),
    Case("starcoder2-classes", Starcoder2Config, Starcoder2ForSequenceClassification, {**STARCODER2, "num_labels": 5}),
    Case(
        "starcoder2-token-classes", Starcoder2Config, Starcoder2ForTokenClassification, {**STARCODER2, "num_labels": 5}
    ),
    Case("opt-body", OPTConfig, OPTModel, OPT),
    Case("mpt-body", MptConfig, MptModel, MPT),
    Case("stablelm-body", StableLmConfig, StableLmModel, STABLELM),
    Case("starcoder2-body", Starcoder2Config, Starcoder2Model, STARCODER2),
]
