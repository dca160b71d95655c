"""What Llama and its many relatives share: a template, names of tensors and options. Each of them adds what differs."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from transpect.core import (
    AttentionConfig,
    BranchEnd,
    CausalLM,
    Glu,
    Head,
    ModelConfig,
    NormalInit,
    Pooled,
    Pre,
    RMSNorm,
    Sandwich,
    StackConfig,
    TokenClass,
)
from transpect.core.positions import Rope
from transpect.interop.families.decoder import CAUSAL, FFN, FINAL, LAST, SELF, head_rows, tied_head
from transpect.interop.options import Entry, Key, Labels, activations
from transpect.interop.tensors import Row, Table

TEMPLATE = ModelConfig(
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
    init=NormalInit(residual_scaling=False),
)

# what their layers call the norms, by placement
NORMS = {
    Pre: (
        Row("layers.#.input_layernorm.*", f"{SELF}.before.*"),
        Row("layers.#.post_attention_layernorm.*", f"{FFN}.before.*"),
    ),
    Sandwich: (
        Row("layers.#.input_layernorm.*", f"{SELF}.before.*"),
        Row("layers.#.post_attention_layernorm.*", f"{SELF}.after_branch.*"),
        Row("layers.#.pre_feedforward_layernorm.*", f"{FFN}.before.*"),
        Row("layers.#.post_feedforward_layernorm.*", f"{FFN}.after_branch.*"),
    ),
    BranchEnd: (
        Row("layers.#.post_attention_layernorm.*", f"{SELF}.after_branch.*"),
        Row("layers.#.post_feedforward_layernorm.*", f"{FFN}.after_branch.*"),
    ),
}
QKV = tuple(Row(f"layers.#.self_attn.{name[0]}_proj.*", f"{SELF}.body.{name}.*") for name in ("query", "key", "value"))
GATED = (
    Row("layers.#.mlp.gate_proj.*", f"{FFN}.body.gate.*"),
    Row("layers.#.mlp.up_proj.*", f"{FFN}.body.up.*"),
    Row("layers.#.mlp.down_proj.*", f"{FFN}.body.down.*"),
)


def table(config: ModelConfig, *, qkv: tuple[Row, ...] = QKV, ffn: tuple[Row, ...] = GATED) -> Table:
    """The tensors of ``LlamaForCausalLM``, its siblings and relatives."""
    assert config.decoder is not None
    return Table(
        prefix="model.",
        body=(
            Row("embed_tokens.*", "token.*"),
            *qkv,
            Row("layers.#.self_attn.q_norm.*", f"{SELF}.body.query_norm.*"),
            Row("layers.#.self_attn.k_norm.*", f"{SELF}.body.key_norm.*"),
            Row("layers.#.self_attn.q_norm.*", f"{SELF}.body.query_norm.norm.*"),  # of all heads
            Row("layers.#.self_attn.k_norm.*", f"{SELF}.body.key_norm.norm.*"),
            Row("layers.#.self_attn.o_proj.*", f"{SELF}.body.out.*"),
            *ffn,
            *NORMS[type(config.decoder.placement)],
            Row("norm.*", f"{FINAL}.*"),
        ),
        head=head_rows(config),
        aliases=tied_head(config, "model.embed_tokens.weight"),
        void=("layers.#.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
    )


def heads(name: str, *, body: str = "", without: Collection[str] = (), **options: Any) -> dict[str, Head]:
    """The architectures of a family by its name in their classes.

    Args:
        name: e.g. ``Llama``.
        body: the name of its bare model, where that is not ``{name}Model``.
        without: classes that `transformers` does not have, e.g. ``Olmo2ForTokenClassification``.
        options: of `CausalLM`.
    """
    known: dict[str, Head] = {
        f"{name}ForCausalLM": CausalLM(**{"tied": False, **options}),
        body or f"{name}Model": Pooled(pool="last"),
        f"{name}ForSequenceClassification": LAST,
        f"{name}ForTokenClassification": TokenClass(2),
    }
    return {architecture: head for architecture, head in known.items() if architecture not in without}


def entries(defaults: Mapping[str, Any], *more: Entry, without: Collection[str] = ()) -> tuple[Entry, ...]:
    """The options that nearly all of them know, and ``more``.

    Args:
        defaults: what differs from Llama's.
        more: a family's own.
        without: names that the family does not know.
    """
    keys = (replace(key, default=defaults.get(key.name, key.default)) for key in KEYS if key.name not in without)
    return (*keys, *more, Labels())


BIASES = ("decoder.attention.qkv_bias", "decoder.attention.out_bias")
KEYS = (
    Key("vocab_size", "vocab_size", 32000),
    Key("hidden_size", "d_model", 4096),
    Key("max_position_embeddings", "context_length", 2048),
    Key("num_hidden_layers", "decoder.n_layers", 32),
    Key("num_attention_heads", "decoder.attention.n_heads", 32),
    Key("num_key_value_heads", "decoder.attention.n_kv_heads", None),
    Key("head_dim", "decoder.attention.head_dim", None),
    Key("intermediate_size", "decoder.ffn.d_ff", 11008),
    Key("hidden_act", "decoder.ffn.act", "silu", activations("silu", "gelu_pytorch_tanh")),
    Key("attention_bias", BIASES, False),
    Key("mlp_bias", "decoder.ffn.bias", False),
    Key("rms_norm_eps", "decoder.norm.eps", 1e-6),
    Key("attention_dropout", "decoder.attention.dropout", 0.0),
    Key("initializer_range", "init.std", 0.02, optional=True),
    Key("tie_word_embeddings", "head.tied", False, heads=CAUSAL),
    Key("classifier_dropout", "head.dropout", 0.1, heads=("token_class",)),
)


def whole_heads(config: ModelConfig) -> bool:
    """Some configs of `transformers` want D to be a multiple of H even where head_dim is given."""
    return config.decoder is not None and config.d_model % config.decoder.attention.n_heads == 0
