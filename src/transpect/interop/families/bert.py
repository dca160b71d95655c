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
from transpect.interop.family import Family
from transpect.interop.options import Allowed, Key, Labels, Like, activations, words
from transpect.interop.tensors import Alias, Row, Table, branch, step

SELF, FFN = branch("encoder", "self"), branch("encoder", "ffn")
NORM = LayerNorm(eps=1e-12)
MASKED = ("masked_lm",)
EMBEDDINGS = "bert.embeddings.word_embeddings.weight"


def table(config: ModelConfig) -> Table:
    """The tensors of ``BertForMaskedLM`` and its siblings."""
    tied = isinstance(config.head, MaskedLM) and config.head.tied
    # the output layer has a bias of its own and shares it with its owner only where it shares its weight with the table
    output, other = "cls.predictions.decoder", "cls.predictions"
    owner, second = (other, output) if tied else (output, other)
    masked = (
        Row("cls.predictions.transform.dense.*", "head.dense.*"),
        Row("cls.predictions.transform.LayerNorm.*", "head.norm.*"),
        Row(f"{output}.weight", "head.project.weight"),
        Row(f"{owner}.bias", "head.project.bias"),
    )
    classes = (Row("classifier.*", "head.project.*"),)
    return Table(
        prefix="bert.",
        body=(
            Row("embeddings.word_embeddings.*", "token.*"),
            Row("embeddings.token_type_embeddings.*", "towers.encoder.embeddings.segment.table.*"),
            Row("embeddings.position_embeddings.*", "towers.encoder.stack.positions.table.*"),
            Row("embeddings.LayerNorm.*", "towers.encoder.embeddings.norm.*"),
            Row("encoder.layer.#.attention.self.query.*", f"{SELF}.body.query.*"),
            Row("encoder.layer.#.attention.self.key.*", f"{SELF}.body.key.*"),
            Row("encoder.layer.#.attention.self.value.*", f"{SELF}.body.value.*"),
            Row("encoder.layer.#.attention.output.dense.*", f"{SELF}.body.out.*"),
            Row("encoder.layer.#.attention.output.LayerNorm.*", f"{step('encoder', 'self')}.after.*"),
            Row("encoder.layer.#.intermediate.dense.*", f"{FFN}.body.up.*"),
            Row("encoder.layer.#.output.dense.*", f"{FFN}.body.down.*"),
            Row("encoder.layer.#.output.LayerNorm.*", f"{step('encoder', 'ffn')}.after.*"),
            Row("pooler.dense.*", "head.transform.dense.*"),
        ),
        head=masked if isinstance(config.head, MaskedLM) else classes,
        aliases=(
            *((Alias(f"{output}.weight", EMBEDDINGS),) if tied else ()),
            *((Alias(f"{second}.bias", f"{owner}.bias", binding=tied),) if isinstance(config.head, MaskedLM) else ()),
        ),
        # published checkpoints carry heads of their pretraining that another architecture does not read
        void=(
            "embeddings.position_ids",
            "cls.seq_relationship.*",
            *(("pooler.dense.*",) if isinstance(config.head, MaskedLM | TokenClass) else ()),
        ),
        renamed=(("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")),
    )


def opens_there(config: ModelConfig) -> bool:
    """`transformers` looks a token type up in any case."""
    return config.embedding.token_types > 0


FAMILY = Family(
    model_type="bert",
    table=table,
    template=ModelConfig(
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
    ),
    heads={
        "BertForMaskedLM": MaskedLM(norm=NORM),
        "BertForPreTraining": MaskedLM(norm=NORM),
        "BertModel": Pooled(pool="first", transform=Transform()),
        "BertForSequenceClassification": SequenceClass(2),
        "BertForTokenClassification": TokenClass(2),
    },
    entries=(
        Key("vocab_size", "vocab_size", 30522),
        Key("hidden_size", "d_model", 768),
        Key("max_position_embeddings", "context_length", 512),
        Key("type_vocab_size", "embedding.token_types", 2),
        Key("num_hidden_layers", "encoder.n_layers", 12),
        Key("num_attention_heads", "encoder.attention.n_heads", 12),
        Key("intermediate_size", "encoder.ffn.d_ff", 3072),
        Key("hidden_act", "encoder.ffn.act", "gelu", activations("gelu")),
        Key("hidden_act", "head.act", "gelu", activations("gelu"), heads=MASKED),
        Key("layer_norm_eps", ("encoder.norm.eps", "embedding.norm.eps"), 1e-12),
        Key("layer_norm_eps", "head.norm.eps", 1e-12, heads=MASKED),
        Key("hidden_dropout_prob", ("encoder.dropout", "embedding.dropout"), 0.1),
        Key("attention_probs_dropout_prob", "encoder.attention.dropout", 0.1),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=MASKED),
        Key(
            "classifier_dropout",
            "head.dropout",
            Like("hidden_dropout_prob"),
            heads=("sequence_class", "token_class"),
        ),
        Labels(),
    ),
    allowed=Allowed({"position_embedding_type": ("absolute",)}),
    void=words(
        """directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
        pooler_type"""
    ),
    bare=frozenset({"BertModel"}),
    opens_there=opens_there,
)
