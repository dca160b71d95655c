"""Encoder–decoders."""

import torch
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from family_cases.base import Case, Options

T5: Options = {
    "vocab_size": 97,
    "d_model": 48,
    "d_kv": 10,
    "d_ff": 60,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 10,
    "relative_attention_max_distance": 23,
}
GATED: Options = {
    **T5,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "layer_norm_epsilon": 1e-2,
}


def own_head(model: nn.Module) -> None:
    """Untie it, as checkpoints of T5 v1.1 are; `transformers` ties a new model in any case."""
    model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))


CASES = [
    Case("t5", T5Config, T5ForConditionalGeneration, T5),
    Case("t5-gated", T5Config, T5ForConditionalGeneration, GATED, prepare=own_head),
    Case("t5-gated-tied", T5Config, T5ForConditionalGeneration, GATED),
]
