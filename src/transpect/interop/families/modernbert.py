"""ModernBERT (Warner et al. 2024): an encoder with rotary positions, gated feed-forwards, and windows in two layers of
three."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.core import (
    AttentionConfig,
    EmbeddingConfig,
    Full,
    Glu,
    LayerNorm,
    MaskedLM,
    ModelConfig,
    NormalInit,
    Pooled,
    SequenceClass,
    StackConfig,
    TokenClass,
    Transform,
)
from transpect.core.positions import Rope
from transpect.interop.families.encoder import CLASSES, EMBEDDINGS, FFN, MASKED, PROJECT, SELF, STACK
from transpect.interop.family import Family
from transpect.interop.layer_types import Layers, WindowRule, Windows, must_agree, whole
from transpect.interop.layouts import Fused
from transpect.interop.options import Key, Labels, Options, activations, words
from transpect.interop.rope import FRACTION, RopeOptions
from transpect.interop.rope_by_type import RopeByType
from transpect.interop.tensors import Alias, Row, Table

NORM = LayerNorm(bias=False)
TRANSFORM = Transform(act="gelu", bias=False, norm=NORM)
PERIOD = "global_attn_every_n_layers"


@dataclass(frozen=True)
class AllButEach(WindowRule):
    """All layers but those whose number is a multiple of a period see ``local_attention`` tokens."""

    def defaults(self) -> Mapping[str, Any]:
        return {"local_attention": 128, PERIOD: 3}

    def width(self, options: Options) -> int | None:
        return whole(options, "local_attention")

    def windowed(self, options: Options, n_layers: int) -> list[bool]:
        period = whole(options, PERIOD) or 1
        return [layer % period != 0 for layer in range(n_layers)]

    def agree(self, options: Options, windowed: Sequence[bool]) -> None:
        must_agree(self, PERIOD, options, windowed)

    def write(self, windowed: Sequence[bool], width: int | None) -> Mapping[str, Any]:
        n = len(windowed)
        fitting = [p for p in range(1, n + 1) if [layer % p != 0 for layer in range(n)] == list(windowed)]
        return {
            **({} if width is None else {"local_attention": width}),
            **({PERIOD: fitting[0]} if fitting else {}),
        }


def table(config: ModelConfig) -> Table:
    """The tensors of ``ModernBertForMaskedLM`` and its siblings."""
    masked = isinstance(config.head, MaskedLM)
    tied = isinstance(config.head, MaskedLM) and config.head.tied
    before = "head" if masked else "head.transform"
    return Table(
        prefix="model.",
        body=(
            Row("embeddings.tok_embeddings.*", "token.*"),
            Row("embeddings.norm.*", f"{EMBEDDINGS}.norm.*"),
            Row("layers.#.attn_norm.*", f"{SELF}.before.*"),
            Row(
                "layers.#.attn.Wqkv.*",
                (f"{SELF}.body.query.*", f"{SELF}.body.key.*", f"{SELF}.body.value.*"),
                Fused(),
            ),
            Row("layers.#.attn.Wo.*", f"{SELF}.body.out.*"),
            Row("layers.#.mlp_norm.*", f"{FFN}.before.*"),
            Row("layers.#.mlp.Wi.*", (f"{FFN}.body.gate.*", f"{FFN}.body.up.*"), Fused()),
            Row("layers.#.mlp.Wo.*", f"{FFN}.body.down.*"),
            Row("final_norm.*", f"{STACK}.final_norm.*"),
        ),
        head=(
            Row("head.dense.*", f"{before}.dense.*"),
            Row("head.norm.*", f"{before}.norm.*"),
            Row("decoder.*" if masked else "classifier.*", PROJECT),
        ),
        aliases=(Alias("decoder.weight", "model.embeddings.tok_embeddings.weight"),) if tied else (),
    )


WINDOWS = Windows(AllButEach(), encoder=True)
ROPE = RopeByType(
    WINDOWS,
    local="local_rope_theta",
    wide=RopeOptions("positions", theta=160000.0, names=("global_rope_theta", FRACTION)),
    scales_both=True,
)

FAMILY = Family(
    model_type="modernbert",
    table=table,
    template=ModelConfig(
        vocab_size=50368,
        d_model=768,
        context_length=8192,
        embedding=EmbeddingConfig(norm=NORM),
        encoder=StackConfig(
            n_layers=22,
            attention=AttentionConfig(n_heads=12, qkv_bias=False, out_bias=False),
            ffn=Glu(d_ff=1152, act="gelu"),
            norm=NORM,
            first_norm=False,
            positions=Rope(theta=160000.0),
            visibility=Full(),
        ),
        init=NormalInit(),
    ),
    heads={
        "ModernBertForMaskedLM": MaskedLM(dense_bias=False, norm=NORM),
        "ModernBertModel": Pooled(pool="first"),
        "ModernBertForSequenceClassification": SequenceClass(2, transform=TRANSFORM),
        "ModernBertForTokenClassification": TokenClass(2, transform=TRANSFORM),
    },
    entries=(
        Key("vocab_size", "vocab_size", 50368),
        Key("hidden_size", "d_model", 768),
        Key("max_position_embeddings", "context_length", 8192),
        Key("num_hidden_layers", "encoder.n_layers", 22),
        Key("num_attention_heads", "encoder.attention.n_heads", 12),
        Key("intermediate_size", "encoder.ffn.d_ff", 1152),
        Key("hidden_activation", "encoder.ffn.act", "gelu", activations("gelu")),
        Key("attention_bias", ("encoder.attention.qkv_bias", "encoder.attention.out_bias"), False),
        Key("mlp_bias", "encoder.ffn.bias", False),
        Key("norm_eps", ("encoder.norm.eps", "embedding.norm.eps"), 1e-5),
        Key("norm_eps", "head.norm.eps", 1e-5, heads=MASKED),
        Key("norm_eps", "head.transform.norm.eps", 1e-5, heads=CLASSES),
        Key("norm_bias", ("encoder.norm.bias", "embedding.norm.bias"), False),
        Key("norm_bias", "head.norm.bias", False, heads=MASKED),
        Key("norm_bias", "head.transform.norm.bias", False, heads=CLASSES),
        Key("decoder_bias", "head.bias", True, heads=MASKED),
        Key("classifier_bias", "head.dense_bias", False, heads=MASKED),
        Key("classifier_bias", "head.transform.bias", False, heads=CLASSES),
        Key("classifier_activation", "head.act", "gelu", activations("gelu"), heads=MASKED),
        Key("classifier_activation", "head.transform.act", "gelu", activations("gelu"), heads=CLASSES),
        Key("classifier_pooling", "head.pool", "cls", {"cls": "first", "mean": "mean"}, heads=("sequence_class",)),
        Key("classifier_dropout", "head.dropout", 0.0, heads=CLASSES),
        Key("embedding_dropout", "embedding.dropout", 0.0),
        Key("attention_dropout", "encoder.attention.dropout", 0.0),
        Key("mlp_dropout", "encoder.ffn.dropout", 0.0),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=MASKED),
        Layers("encoder", (WINDOWS, ROPE)),
        Labels(),
    ),
    # how weights start and how a loss is computed; the last two stand in published configs and are read by nobody
    void=words(
        """initializer_cutoff_factor sparse_prediction sparse_pred_ignore_index deterministic_flash_attn
        reference_compile repad_logits_with_grad layer_norm_eps position_embedding_type"""
    ),
    bare=frozenset({"ModernBertModel"}),
)
