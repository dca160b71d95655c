"""BLOOM (BigScience 2022): ALiBi, a norm on the embeddings, one matrix for q, k and v."""

from transpect.core import (
    AttentionConfig,
    CausalLM,
    EmbeddingConfig,
    LayerNorm,
    Mlp,
    ModelConfig,
    NormalInit,
    StackConfig,
    TokenClass,
)
from transpect.core.positions import Alibi
from transpect.interop.families.decoder import CAUSAL, FFN, FINAL, LAST, SELF, head_rows, projections, tied_head
from transpect.interop.family import Family
from transpect.interop.layouts import Grouped
from transpect.interop.options import Allowed, Key, Labels, Like, words
from transpect.interop.tensors import Row, Table, step


def table(config: ModelConfig) -> Table:
    """The tensors of ``BloomForCausalLM`` and its siblings."""
    assert config.decoder is not None
    before_self, before_ffn = f"{SELF}.before", f"{FFN}.before"
    if config.decoder.placement.enter:
        before_self, before_ffn = (f"{step('decoder', name)}.enter" for name in ("self", "ffn"))
    return Table(
        prefix="transformer.",
        body=(
            Row("word_embeddings.*", "token.*"),
            Row("word_embeddings_layernorm.*", "towers.decoder.embeddings.norm.*"),
            Row("h.#.input_layernorm.*", f"{before_self}.*"),
            Row("h.#.self_attention.query_key_value.*", projections(SELF), Grouped(config.decoder.attention.n_heads)),
            Row("h.#.self_attention.dense.*", f"{SELF}.body.out.*"),
            Row("h.#.post_attention_layernorm.*", f"{before_ffn}.*"),
            Row("h.#.mlp.dense_h_to_4h.*", f"{FFN}.body.up.*"),
            Row("h.#.mlp.dense_4h_to_h.*", f"{FFN}.body.down.*"),
            Row("ln_f.*", f"{FINAL}.*"),
        ),
        head=head_rows(config, tokens="classifier"),
        aliases=tied_head(config, "transformer.word_embeddings.weight"),
    )


FAMILY = Family(
    model_type="bloom",
    table=table,
    template=ModelConfig(
        vocab_size=250880,
        d_model=64,
        context_length=2048,
        embedding=EmbeddingConfig(norm=LayerNorm()),
        decoder=StackConfig(
            n_layers=2, attention=AttentionConfig(n_heads=8), ffn=Mlp(act="gelu_tanh"), positions=Alibi()
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads={
        "BloomForCausalLM": CausalLM(),
        "BloomForSequenceClassification": LAST,
        "BloomForTokenClassification": TokenClass(2),
        "BloomModel": CausalLM(),  # what the first of them are called; their head is the token table
    },
    entries=(
        Key("vocab_size", "vocab_size", 250880),
        Key("hidden_size", "d_model", 64),
        Key("seq_length", "context_length", 2048),
        Key("n_layer", "decoder.n_layers", 2),
        Key("n_head", "decoder.attention.n_heads", 8),
        Key("apply_residual_connection_post_layernorm", "decoder.placement.kind", False, {False: "pre", True: "enter"}),
        Key("layer_norm_epsilon", ("decoder.norm.eps", "embedding.norm.eps"), 1e-5),
        Key("hidden_dropout", "decoder.dropout", 0.0),
        Key("attention_dropout", "decoder.attention.dropout", 0.0),
        Key("classifier_dropout", "head.dropout", Like("hidden_dropout"), heads=("token_class",)),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=CAUSAL),
        Labels(),
    ),
    synonyms={"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    allowed=Allowed({"n_inner": (None,)}),
    # how it was trained on many machines: the sums are the same
    void=words("""pretraining_tp slow_but_exact attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion
        offset_alibi skip_bias_add skip_bias_add_qkv"""),
)
