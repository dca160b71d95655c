"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler, under names of its own."""

from dataclasses import replace

from transpect.core import EmbeddingConfig, MaskedLM, ModelConfig, Pooled, SequenceClass, TokenClass, Transform
from transpect.interop.families.bert import NORM, TEMPLATE
from transpect.interop.families.encoder import (
    EMBEDDING_ROWS,
    FFN,
    LENGTH,
    MASKED,
    PROJECT,
    RENAMED,
    SELF,
    TOKENS,
    TRANSFORM,
)
from transpect.interop.family import Family
from transpect.interop.options import Key, Labels, activations, words
from transpect.interop.tensors import Alias, Row, Table, step

LAYER = "transformer.layer.#"


def table(config: ModelConfig) -> Table:
    """The tensors of ``DistilBertForMaskedLM`` and its siblings."""
    masked = isinstance(config.head, MaskedLM)
    tied = isinstance(config.head, MaskedLM) and config.head.tied
    masked_rows = (
        Row("vocab_transform.*", "head.dense.*"),
        Row("vocab_layer_norm.*", "head.norm.*"),
        Row("vocab_projector.*", PROJECT),
    )
    return Table(
        prefix="distilbert.",
        body=(
            *EMBEDDING_ROWS,
            Row(f"{LAYER}.attention.q_lin.*", f"{SELF}.body.query.*"),
            Row(f"{LAYER}.attention.k_lin.*", f"{SELF}.body.key.*"),
            Row(f"{LAYER}.attention.v_lin.*", f"{SELF}.body.value.*"),
            Row(f"{LAYER}.attention.out_lin.*", f"{SELF}.body.out.*"),
            Row(f"{LAYER}.sa_layer_norm.*", f"{step('encoder', 'self')}.after.*"),
            Row(f"{LAYER}.ffn.lin1.*", f"{FFN}.body.up.*"),
            Row(f"{LAYER}.ffn.lin2.*", f"{FFN}.body.down.*"),
            Row(f"{LAYER}.output_layer_norm.*", f"{step('encoder', 'ffn')}.after.*"),
        ),
        head=masked_rows if masked else (Row("pre_classifier.*", TRANSFORM), Row("classifier.*", PROJECT)),
        aliases=(Alias("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),) if tied else (),
        void=("embeddings.position_ids",),
        renamed=RENAMED,
    )


FAMILY = Family(
    model_type="distilbert",
    unnamed=True,
    table=table,
    template=replace(TEMPLATE, embedding=EmbeddingConfig(norm=NORM)),
    heads={
        "DistilBertForMaskedLM": MaskedLM(norm=NORM),
        "DistilBertModel": Pooled(pool="first"),
        "DistilBertForSequenceClassification": SequenceClass(2, transform=Transform(act="relu")),
        "DistilBertForTokenClassification": TokenClass(2),
    },
    entries=(
        Key("vocab_size", "vocab_size", 30522),
        Key("dim", "d_model", 768),
        LENGTH,
        Key("n_layers", "encoder.n_layers", 6),
        Key("n_heads", "encoder.attention.n_heads", 12),
        Key("hidden_dim", "encoder.ffn.d_ff", 3072),
        Key("activation", "encoder.ffn.act", "gelu", activations("gelu")),
        Key("activation", "head.act", "gelu", activations("gelu"), heads=MASKED),
        Key("dropout", ("encoder.dropout", "embedding.dropout"), 0.1),
        Key("dropout", "head.dropout", 0.1, heads=TOKENS),
        Key("attention_dropout", "encoder.attention.dropout", 0.1),
        Key("seq_classif_dropout", "head.dropout", 0.2, heads=("sequence_class",)),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=MASKED),
        Labels(),
    ),
    # sinusoids were what a table of positions starts from; it is stored and trained all the same
    void=words("sinusoidal_pos_embds qa_dropout tie_weights_"),
    bare=frozenset({"DistilBertModel"}),
    synonyms={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
)
