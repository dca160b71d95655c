"""Decoders from GPT-1 to those before Llama."""

from transformers import (
    BloomConfig,
    BloomForCausalLM,
    BloomForSequenceClassification,
    BloomForTokenClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    GPTJForSequenceClassification,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GPTNeoXForSequenceClassification,
    GPTNeoXForTokenClassification,
    MptConfig,
    MptForCausalLM,
    MptForSequenceClassification,
    MptForTokenClassification,
    OPTConfig,
    OPTForCausalLM,
    OPTForSequenceClassification,
)

from family_cases.base import Case, Options

GPT2: Options = {"vocab_size": 97, "n_positions": 64, "n_embd": 48, "n_layer": 3, "n_head": 3, "n_inner": None}
NEOX: Options = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 60,
    "max_position_embeddings": 64,
}
NEOX_HEAD = (("embed_out", "lm_head"),)
GPTJ: Options = {
    "vocab_size": 97,
    "n_positions": 64,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 3,
    "n_inner": None,
    "rotary_dim": 6,
}
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

CASES = [
    Case("gpt2", GPT2Config, GPT2LMHeadModel, GPT2),
    Case(
        "gpt2-untied",
        GPT2Config,
        GPT2LMHeadModel,
        {
            **GPT2,
            "n_inner": 60,
            "activation_function": "relu",
            "scale_attn_weights": False,
            "layer_norm_epsilon": 1e-2,
            "tie_word_embeddings": False,
        },
    ),
    Case("gpt2-classes", GPT2Config, GPT2ForSequenceClassification, {**GPT2, "num_labels": 5}),
    Case("neox", GPTNeoXConfig, GPTNeoXForCausalLM, NEOX, memory=NEOX_HEAD),
    Case(
        "neox-sequential",
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        {
            **NEOX,
            "use_parallel_residual": False,
            "attention_bias": False,
            "hidden_act": "gelu_fast",
            "rotary_pct": 0.5,
            "rotary_emb_base": 1000,
            "layer_norm_eps": 1e-2,
            "tie_word_embeddings": True,
        },
        memory=NEOX_HEAD,
    ),
    Case(
        "neox-yarn",
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        {
            **NEOX,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
            "rotary_pct": 0.75,
        },
        memory=NEOX_HEAD,
    ),
    Case("neox-classes", GPTNeoXConfig, GPTNeoXForSequenceClassification, {**NEOX, "num_labels": 5}),
    Case("neox-token-classes", GPTNeoXConfig, GPTNeoXForTokenClassification, {**NEOX, "num_labels": 5}),
    Case("gptj", GPTJConfig, GPTJForCausalLM, GPTJ),
    Case(
        "gptj-tied",
        GPTJConfig,
        GPTJForCausalLM,
        {
            **GPTJ,
            "n_inner": 60,
            "rotary_dim": 16,
            "activation_function": "relu",
            "layer_norm_epsilon": 1e-2,
            "tie_word_embeddings": True,
        },
    ),
    Case("gptj-classes", GPTJConfig, GPTJForSequenceClassification, {**GPTJ, "num_labels": 5}),
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
]
