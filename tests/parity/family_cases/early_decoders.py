"""Decoders from GPT-1 to those before Llama."""

from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

from family_cases.base import Case, Options

GPT2: Options = {"vocab_size": 97, "n_positions": 64, "n_embd": 48, "n_layer": 3, "n_head": 3, "n_inner": None}

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
]
