"""Encoder–decoders."""

from typing import Any

import torch
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BigBirdPegasusConfig,
    BigBirdPegasusForConditionalGeneration,
    LongT5Config,
    LongT5ForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

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
TGLOBAL: Options = {
    **T5,
    "encoder_attention_type": "transient-global",
    "local_radius": 6,
    "global_block_size": 4,  # their blocks are counted in floating point, which is exact for powers of 2 alone
}
GATED: Options = {
    **T5,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "layer_norm_epsilon": 1e-2,
}

BART: Options = {
    "vocab_size": 97,
    "d_model": 48,
    "max_position_embeddings": 64,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 60,
    "decoder_ffn_dim": 52,
    "decoder_start_token_id": 3,
    "forced_eos_token_id": None,
}

SPARSE: Options = {"block_size": 4, "num_random_blocks": 1}


def own_head(model: nn.Module) -> None:
    """Untie it, as checkpoints of T5 v1.1 are; `transformers` ties a new model in any case."""
    model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))


def some_bias(model: nn.Module) -> None:
    """Bias the vocabulary; a new model has zeros, and it is no parameter."""
    bias = model.final_logits_bias
    bias.normal_(generator=torch.Generator().manual_seed(3))


def like_bart(name: str, config: Any, model: Any, *, bias: bool = True, **options: Any) -> Case:
    """A relative of BART. Their positions count padding."""
    prepare = some_bias if bias else Case.prepare
    return Case(name, config, model, {**BART, **options}, prepare=prepare, row_by_row=True)


CASES = [
    Case("t5", T5Config, T5ForConditionalGeneration, T5),
    Case("t5-gated", T5Config, T5ForConditionalGeneration, GATED, prepare=own_head),
    Case("t5-gated-tied", T5Config, T5ForConditionalGeneration, GATED),
    Case("mt5", MT5Config, MT5ForConditionalGeneration, {**T5, "feed_forward_proj": "gated-gelu"}, prepare=own_head),
    Case("mt5-tied", MT5Config, MT5ForConditionalGeneration, {**T5, "feed_forward_proj": "gated-silu"}),
    Case("umt5", UMT5Config, UMT5ForConditionalGeneration, {**GATED, "scalable_attention": True}, prepare=own_head),
    Case("umt5-scaled", UMT5Config, UMT5ForConditionalGeneration, {**T5, "feed_forward_proj": "gated-gelu"}),
    Case("longt5", LongT5Config, LongT5ForConditionalGeneration, {**T5, "local_radius": 6}),
    Case("longt5-gated", LongT5Config, LongT5ForConditionalGeneration, {**GATED, "local_radius": 1}, prepare=own_head),
    # there, blocks begin with the columns of a batch, padded or not
    Case("longt5-tglobal", LongT5Config, LongT5ForConditionalGeneration, TGLOBAL, row_by_row=True),
    Case(
        "longt5-tglobal-gated",
        LongT5Config,
        LongT5ForConditionalGeneration,
        {**TGLOBAL, **GATED, "local_radius": 2, "global_block_size": 8},
        prepare=own_head,
        row_by_row=True,
    ),
    Case(  # only the longest row fills a block
        "longt5-tglobal-short",
        LongT5Config,
        LongT5ForConditionalGeneration,
        {**TGLOBAL, "global_block_size": 32},
        row_by_row=True,
    ),
    like_bart("bart", BartConfig, BartForConditionalGeneration),
    like_bart(
        "bart-scaled",
        BartConfig,
        BartForConditionalGeneration,
        scale_embedding=True,
        activation_function="relu",
        encoder_attention_heads=6,
        decoder_attention_heads=2,
    ),
    like_bart("mbart", MBartConfig, MBartForConditionalGeneration),
    like_bart("mbart-scaled", MBartConfig, MBartForConditionalGeneration, scale_embedding=True),
    like_bart("marian", MarianConfig, MarianMTModel, scale_embedding=True, activation_function="swish"),
    like_bart("marian-odd", MarianConfig, MarianMTModel, d_model=45, decoder_attention_heads=5),
    like_bart("pegasus", PegasusConfig, PegasusForConditionalGeneration, scale_embedding=True),
    like_bart("pegasus-unscaled", PegasusConfig, PegasusForConditionalGeneration, activation_function="gelu_new"),
    # their table of positions must have a row for padding
    like_bart("m2m-100", M2M100Config, M2M100ForConditionalGeneration, bias=False, max_position_embeddings=200),
    like_bart(
        "m2m-100-unscaled",
        M2M100Config,
        M2M100ForConditionalGeneration,
        bias=False,
        max_position_embeddings=200,
        scale_embedding=False,
        activation_function="gelu",
    ),
    like_bart("bigbird-pegasus", BigBirdPegasusConfig, BigBirdPegasusForConditionalGeneration, **SPARSE),
    like_bart(
        "bigbird-pegasus-odd",
        BigBirdPegasusConfig,
        BigBirdPegasusForConditionalGeneration,
        block_size=3,
        num_random_blocks=2,
        use_bias=True,
        scale_embedding=False,
    ),
    like_bart(  # too short for blocks
        "bigbird-pegasus-short", BigBirdPegasusConfig, BigBirdPegasusForConditionalGeneration, block_size=8
    ),
    like_bart(
        "bigbird-pegasus-full",
        BigBirdPegasusConfig,
        BigBirdPegasusForConditionalGeneration,
        attention_type="original_full",
        use_bias=True,
    ),
]
