"""GPT-NeoX (Black et al. 2022) and Pythia: partly rotary positions, branches in parallel, one matrix for q, k and v."""

from transpect.core import (
    AttentionConfig,
    CausalLM,
    Mlp,
    ModelConfig,
    NormalInit,
    StackConfig,
    TokenClass,
)
from transpect.core.positions import Rope
from transpect.interop.families.decoder import (
    BODY,
    CAUSAL,
    FFN,
    FINAL,
    LAST,
    PARALLEL_FFN,
    PARALLEL_SELF,
    SELF,
    ParallelResidual,
    head_rows,
    is_parallel,
    projections,
    tied_head,
)
from transpect.interop.family import Family
from transpect.interop.layouts import Grouped
from transpect.interop.options import Key, Labels, activations, words
from transpect.interop.rope import RopeOptions
from transpect.interop.tensors import Row, Table


def table(config: ModelConfig) -> Table:
    """The tensors of ``GPTNeoXForCausalLM`` and its siblings."""
    assert config.decoder is not None
    attention, ffn = (PARALLEL_SELF, PARALLEL_FFN) if is_parallel(config) else (SELF, FFN)
    return Table(
        prefix="gpt_neox.",
        body=(
            Row("embed_in.*", "token.*"),
            Row("layers.#.input_layernorm.*", f"{attention}.before.*"),
            Row(
                "layers.#.attention.query_key_value.*",
                projections(attention),
                Grouped(config.decoder.attention.n_heads),
            ),
            Row("layers.#.attention.dense.*", f"{attention}.body.out.*"),
            Row("layers.#.post_attention_layernorm.*", f"{ffn}.before.*"),
            Row("layers.#.mlp.dense_h_to_4h.*", f"{ffn}.body.up.*"),
            Row("layers.#.mlp.dense_4h_to_h.*", f"{ffn}.body.down.*"),
            Row("final_layer_norm.*", f"{FINAL}.*"),
        ),
        head=head_rows(config, vocabulary="embed_out", tokens="classifier"),
        aliases=tied_head(config, "gpt_neox.embed_in.weight", vocabulary="embed_out"),
        void=(
            "layers.#.attention.bias",
            "layers.#.attention.masked_bias",
            "layers.#.attention.rotary_emb.inv_freq",
        ),
    )


FAMILY = Family(
    model_type="gpt_neox",
    table=table,
    template=ModelConfig(
        vocab_size=50432,
        d_model=6144,
        context_length=2048,
        decoder=StackConfig(
            n_layers=44,
            attention=AttentionConfig(n_heads=64),
            ffn=Mlp(d_ff=24576),
            positions=Rope(fraction=0.25),
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads={
        "GPTNeoXForCausalLM": CausalLM(tied=False),
        "GPTNeoXForSequenceClassification": LAST,
        "GPTNeoXForTokenClassification": TokenClass(2),
        "GPTNeoXModel": BODY,
    },
    entries=(
        Key("vocab_size", "vocab_size", 50432),
        Key("hidden_size", "d_model", 6144),
        Key("max_position_embeddings", "context_length", 2048),
        Key("num_hidden_layers", "decoder.n_layers", 44),
        Key("num_attention_heads", "decoder.attention.n_heads", 64),
        Key("intermediate_size", "decoder.ffn.d_ff", 24576),
        Key("hidden_act", "decoder.ffn.act", "gelu", activations("gelu", "gelu_new")),
        Key("attention_bias", ("decoder.attention.qkv_bias", "decoder.attention.out_bias"), True),
        ParallelResidual("use_parallel_residual", default=True),
        RopeOptions("decoder.positions", fraction=0.25, names=("rotary_emb_base", "rotary_pct")),
        Key("layer_norm_eps", "decoder.norm.eps", 1e-5),
        Key("attention_dropout", "decoder.attention.dropout", 0.0),
        Key("hidden_dropout", ("decoder.dropout", "embedding.dropout"), 0.0),
        Key("classifier_dropout", "head.dropout", 0.1, heads=("token_class",)),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", False, heads=CAUSAL),
        Labels(),
    ),
    # the rates of the 20B model's config, by names that were never read
    void=words("attention_probs_dropout_prob hidden_dropout_prob"),
    bare=frozenset({"GPTNeoXModel"}),
)
