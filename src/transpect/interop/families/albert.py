"""ALBERT (Lan et al. 2020): BERT with factorised embeddings and with weights that layers share."""

from transpect.core import MaskedLM, ModelConfig, Pooled, SequenceClass, TokenClass, Transform
from transpect.interop.families.bert import NORM, TEMPLATE, opens_there
from transpect.interop.families.electra import EmbeddingSize
from transpect.interop.families.encoder import (
    CLASSES,
    EMBEDDING_ROWS,
    EMBEDDINGS,
    FFN,
    LENGTH,
    MASKED,
    PROJECT,
    RENAMED,
    SELF,
    TRANSFORM,
    Pooler,
    Vocabulary,
    entries,
)
from transpect.interop.family import Family
from transpect.interop.options import Allowed, Key, Labels, activations
from transpect.interop.tensors import Row, Table, step

LAYER = "encoder.albert_layer_groups.#.albert_layers.0"
OUTPUT = Vocabulary("predictions.decoder", "predictions", "albert.embeddings.word_embeddings.weight")


def table(config: ModelConfig) -> Table:
    """The tensors of ``AlbertForMaskedLM`` and its siblings."""
    masked, by_token = isinstance(config.head, MaskedLM), isinstance(config.head, TokenClass)
    masked_rows = (
        Row("predictions.dense.*", "head.dense.*"),
        Row("predictions.LayerNorm.*", "head.norm.*"),
        *OUTPUT.rows(config),
    )
    return Table(
        prefix="albert.",
        body=(
            *EMBEDDING_ROWS,
            Row("encoder.embedding_hidden_mapping_in.*", f"{EMBEDDINGS}.project.*"),
            Row(f"{LAYER}.attention.query.*", f"{SELF}.body.query.*"),
            Row(f"{LAYER}.attention.key.*", f"{SELF}.body.key.*"),
            Row(f"{LAYER}.attention.value.*", f"{SELF}.body.value.*"),
            Row(f"{LAYER}.attention.dense.*", f"{SELF}.body.out.*"),
            Row(f"{LAYER}.attention.LayerNorm.*", f"{step('encoder', 'self')}.after.*"),
            Row(f"{LAYER}.ffn.*", f"{FFN}.body.up.*"),
            Row(f"{LAYER}.ffn_output.*", f"{FFN}.body.down.*"),
            Row(f"{LAYER}.full_layer_layer_norm.*", f"{step('encoder', 'ffn')}.after.*"),
            Row("pooler.*", TRANSFORM),
        ),
        head=masked_rows if masked else (Row("classifier.*", PROJECT),),
        aliases=OUTPUT.aliases(config) if masked else (),
        # of pretraining: a head that tells the order of two sentences, and the pooler that it reads
        void=(
            "embeddings.position_ids",
            "sop_classifier.classifier.*",
            *(("pooler.*",) if masked or by_token else ()),
        ),
        renamed=RENAMED,
    )


ACTS = activations("gelu_new")

FAMILY = Family(
    model_type="albert",
    table=table,
    template=TEMPLATE,
    heads={
        "AlbertForMaskedLM": MaskedLM(norm=NORM),
        "AlbertForPreTraining": MaskedLM(norm=NORM),
        "AlbertModel": Pooled(pool="first", transform=Transform()),
        "AlbertForSequenceClassification": SequenceClass(2),
        "AlbertForTokenClassification": TokenClass(2),
    },
    entries=(
        *entries(
            act="gelu_new",
            dropout=0.0,
            vocab_size=30000,
            hidden_size=4096,
            num_attention_heads=64,
            intermediate_size=16384,
        ),
        LENGTH,
        EmbeddingSize(projected=True),
        Key("num_hidden_groups", "encoder.n_unique", 1),
        Key("hidden_act", "head.act", "gelu_new", ACTS, heads=MASKED),
        Key("classifier_dropout_prob", "head.dropout", 0.1, heads=CLASSES),
        Labels(),
        Pooler(),
    ),
    allowed=Allowed(
        {
            "inner_group_num": (1,),
            "position_embedding_type": ("absolute",),
            # of the authors' code, where other values have a meaning
            "down_scale_factor": (1,),
            "gap_size": (0,),
            "net_structure_type": (0,),
            "num_memory_blocks": (0,),
        }
    ),
    bare=frozenset({"AlbertModel"}),
    opens_there=opens_there,
)
