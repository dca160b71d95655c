"""A row a model: its published shape, with paper and section. Sizes change by override, never by a new row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError
from transpect.core.attention import AttentionConfig
from transpect.core.config import ModelConfig
from transpect.core.embeddings import EmbeddingConfig
from transpect.core.feedforward import Glu, Mlp
from transpect.core.heads import CausalLM, MaskedLM
from transpect.core.initialization import NormalInit, XavierInit
from transpect.core.norms import LayerNorm, Post, RMSNorm
from transpect.core.positions import Learned, Rope, Sinusoidal, T5Buckets
from transpect.core.stack_config import StackConfig
from transpect.core.visibility import Full, PrefixLM

CROSSING = (("self",), ("cross",), ("ffn",))


@dataclass(frozen=True)
class Preset:
    """A published model's shape."""

    name: str
    source: str
    build: Callable[[], ModelConfig]


def transformer_base() -> ModelConfig:
    attention = AttentionConfig(n_heads=8)  # §5.4 drops residual branches and embeddings, no attention weights
    layer = StackConfig(
        n_layers=6,
        attention=attention,
        ffn=Mlp(d_ff=2048, act="relu"),
        placement=Post(),
        positions=Sinusoidal(),
        visibility=Full(),
        dropout=0.1,
    )
    return ModelConfig(
        vocab_size=37000,
        d_model=512,
        context_length=1024,
        embedding=EmbeddingConfig(scaled=True, dropout=0.1),
        encoder=layer,
        decoder=StackConfig(
            n_layers=6,
            attention=attention,
            ffn=layer.ffn,
            steps=CROSSING,
            placement=Post(),
            positions=Sinusoidal(),
            dropout=0.1,
        ),
        init=XavierInit(),
    )


def gpt1() -> ModelConfig:
    return ModelConfig(
        vocab_size=40478,
        d_model=768,
        context_length=512,
        embedding=EmbeddingConfig(dropout=0.1),
        decoder=StackConfig(
            n_layers=12,
            attention=AttentionConfig(n_heads=12, dropout=0.1),
            ffn=Mlp(act="gelu_tanh"),
            placement=Post(),
            positions=Learned(),
            dropout=0.1,
        ),
        init=NormalInit(residual_scaling=False),
    )


def gpt2() -> ModelConfig:
    return ModelConfig(
        vocab_size=50257,
        d_model=768,
        context_length=1024,
        embedding=EmbeddingConfig(dropout=0.1),
        decoder=StackConfig(
            n_layers=12,
            attention=AttentionConfig(n_heads=12, dropout=0.1),
            ffn=Mlp(act="gelu_tanh"),
            positions=Learned(),
            dropout=0.1,
        ),
    )


def bert_base() -> ModelConfig:
    norm = LayerNorm(eps=1e-12)
    return ModelConfig(
        vocab_size=30522,
        d_model=768,
        context_length=512,
        embedding=EmbeddingConfig(token_types=2, norm=norm, dropout=0.1),
        encoder=StackConfig(
            n_layers=12,
            attention=AttentionConfig(n_heads=12, dropout=0.1),
            placement=Post(),
            norm=norm,
            positions=Learned(),
            visibility=Full(),
            dropout=0.1,
        ),
        head=MaskedLM(norm=norm),
        init=NormalInit(residual_scaling=False),
    )


def t5_small() -> ModelConfig:
    # no 1/√E on the scores: the initialisation absorbs it; only the head is rescaled, since it is tied
    attention = AttentionConfig(n_heads=8, head_dim=64, qkv_bias=False, out_bias=False, scale=1.0, dropout=0.1)
    ffn = Mlp(d_ff=2048, act="relu", bias=False, dropout=0.1)
    return ModelConfig(
        vocab_size=32128,
        d_model=512,
        context_length=512,
        embedding=EmbeddingConfig(dropout=0.1),
        encoder=StackConfig(
            n_layers=6,
            attention=attention,
            ffn=ffn,
            norm=RMSNorm(),
            positions=T5Buckets(),
            visibility=Full(),
            dropout=0.1,
        ),
        decoder=StackConfig(
            n_layers=6,
            attention=attention,
            ffn=ffn,
            steps=CROSSING,
            norm=RMSNorm(),
            positions=T5Buckets(),
            dropout=0.1,
        ),
        head=CausalLM(rescaled=True),
        init=XavierInit(),
    )


def bart_base() -> ModelConfig:
    attention = AttentionConfig(n_heads=12, dropout=0.1)
    return ModelConfig(
        vocab_size=50265,
        d_model=768,
        context_length=1024,
        embedding=EmbeddingConfig(norm=LayerNorm(), dropout=0.1),
        encoder=StackConfig(
            n_layers=6,
            attention=attention,
            ffn=Mlp(dropout=0.1),
            placement=Post(),
            positions=Learned(offset=2),
            visibility=Full(),
            dropout=0.1,
        ),
        decoder=StackConfig(
            n_layers=6,
            attention=attention,
            ffn=Mlp(dropout=0.1),
            steps=CROSSING,
            placement=Post(),
            positions=Learned(offset=2),
            dropout=0.1,
        ),
        head=CausalLM(bias=True),
        init=NormalInit(residual_scaling=False),
    )


def llama() -> ModelConfig:
    return ModelConfig(
        vocab_size=32000,
        d_model=4096,
        context_length=2048,
        decoder=StackConfig(
            n_layers=32,
            attention=AttentionConfig(n_heads=32, qkv_bias=False, out_bias=False),
            ffn=Glu(d_ff=11008),
            norm=RMSNorm(),
            positions=Rope(),
        ),
        head=CausalLM(tied=False),
        init=NormalInit(residual_scaling=False),
    )


def prefix_lm() -> ModelConfig:
    return ModelConfig(
        vocab_size=32128,
        d_model=768,
        context_length=512,
        embedding=EmbeddingConfig(dropout=0.1),
        decoder=StackConfig(
            n_layers=12,
            attention=AttentionConfig(n_heads=12, head_dim=64, qkv_bias=False, out_bias=False, scale=1.0, dropout=0.1),
            ffn=Mlp(d_ff=3072, act="relu", bias=False, dropout=0.1),
            norm=RMSNorm(),
            positions=T5Buckets(),
            visibility=PrefixLM(),
            dropout=0.1,
        ),
        head=CausalLM(rescaled=True),
        init=XavierInit(),
    )


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("transformer-base", "Vaswani et al. 2017, table 3", transformer_base),
        Preset("gpt1", "Radford et al. 2018, §4.1", gpt1),
        Preset("gpt2", "Radford et al. 2019, table 2 (124M)", gpt2),
        Preset("bert-base", "Devlin et al. 2019, §3", bert_base),
        Preset("t5-small", "Raffel et al. 2020, §3.8", t5_small),
        Preset("bart-base", "Lewis et al. 2020, §2", bart_base),
        Preset("llama", "Touvron et al. 2023, table 2 (7B)", llama),
        Preset("prefix-lm", "Raffel et al. 2020, §3.2.1", prefix_lm),
    )
}


def preset(name: str) -> ModelConfig:
    """The config of a row.

    Raises:
        ConfigError: no such row.
    """
    if name not in PRESETS:
        remedy = f"{did_you_mean(name, PRESETS)} Known presets: {', '.join(PRESETS)}.".strip()
        raise ConfigError("no such preset", value=name, remedy=remedy)
    return PRESETS[name].build()
