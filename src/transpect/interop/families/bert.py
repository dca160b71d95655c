"""BERT (Devlin et al. 2019): an encoder with norms after the branches, segment embeddings and a pooler."""

from transpect.core import (
    AttentionConfig,
    EmbeddingConfig,
    Full,
    LayerNorm,
    MaskedLM,
    Mlp,
    ModelConfig,
    NormalInit,
    Pooled,
    Post,
    SequenceClass,
    StackConfig,
    TokenClass,
    Transform,
)
from transpect.core.positions import Learned
from transpect.interop.families.encoder import (
    CLASSIFIER,
    EMBEDDING_ROWS,
    LAYER_ROWS,
    LENGTH,
    MASKED,
    PROJECT,
    RENAMED,
    TRANSFORM,
    Pooler,
    Vocabulary,
    entries,
)
from transpect.interop.family import Family
from transpect.interop.options import Allowed, Key, activations, words
from transpect.interop.tensors import Alias, Row, Table

NORM = LayerNorm(eps=1e-12)
OUTPUT = Vocabulary("cls.predictions.decoder", "cls.predictions", "bert.embeddings.word_embeddings.weight")
MASKED_ROWS = (
    Row("cls.predictions.transform.dense.*", "head.dense.*"),
    Row("cls.predictions.transform.LayerNorm.*", "head.norm.*"),
)
# that of the next sentence is a classifier of two classes, under a name of its own
NEXT_SENTENCE = tuple(Alias(f"cls.seq_relationship.{part}", f"classifier.{part}") for part in ("weight", "bias"))


def table(config: ModelConfig) -> Table:
    """The tensors of ``BertForMaskedLM`` and its siblings."""
    masked, by_token = isinstance(config.head, MaskedLM), isinstance(config.head, TokenClass)
    return Table(
        prefix="bert.",
        body=(*EMBEDDING_ROWS, *LAYER_ROWS, Row("pooler.dense.*", TRANSFORM)),
        head=(*MASKED_ROWS, *OUTPUT.rows(config)) if masked else (Row("classifier.*", PROJECT),),
        aliases=OUTPUT.aliases(config) if masked else NEXT_SENTENCE,
        # published checkpoints carry heads of their pretraining that another architecture does not read
        void=(
            "embeddings.position_ids",
            "cls.seq_relationship.*",
            *(("pooler.dense.*",) if masked or by_token else ()),
        ),
        renamed=RENAMED,
    )


def opens_there(config: ModelConfig) -> bool:
    """`transformers` looks a token type up in any case."""
    return config.embedding.token_types > 0


TEMPLATE = ModelConfig(
    vocab_size=30522,
    d_model=768,
    context_length=512,
    embedding=EmbeddingConfig(token_types=2, norm=NORM),
    encoder=StackConfig(
        n_layers=12,
        attention=AttentionConfig(n_heads=12),
        ffn=Mlp(d_ff=3072),
        placement=Post(),
        norm=NORM,
        positions=Learned(),
        visibility=Full(),
    ),
    init=NormalInit(residual_scaling=False),
)

FAMILY = Family(
    model_type="bert",
    unnamed=True,
    table=table,
    template=TEMPLATE,
    heads={
        "BertForMaskedLM": MaskedLM(norm=NORM),
        "BertForPreTraining": MaskedLM(norm=NORM),
        "BertModel": Pooled(pool="first", transform=Transform()),
        "BertForSequenceClassification": SequenceClass(2),
        "BertForNextSentencePrediction": SequenceClass(2, dropout=0.0),
        "BertForTokenClassification": TokenClass(2),
    },
    entries=(
        *entries(),
        LENGTH,
        Key("hidden_act", "head.act", "gelu", activations("gelu"), heads=MASKED),
        *CLASSIFIER,
        Pooler(),
    ),
    allowed=Allowed({"position_embedding_type": ("absolute",)}),
    void=words(
        """directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
        pooler_type"""
    ),
    bare=frozenset({"BertModel"}),
    opens_there=opens_there,
)
