"""CTRL (Keskar et al. 2019): scaled embeddings, all sines and then all cosines, a bias over the vocabulary."""

from transpect.core import (
    AttentionConfig,
    CausalLM,
    EmbeddingConfig,
    LayerNorm,
    Mlp,
    ModelConfig,
    NormalInit,
    StackConfig,
)
from transpect.core.positions import Sinusoidal
from transpect.interop.families.decoder import BODY, CAUSAL, FFN, FINAL, GPT_WORDS, LAST, SELF, head_rows, tied_head
from transpect.interop.family import Family
from transpect.interop.options import Allowed, Key, Labels, words
from transpect.interop.tensors import Row, Table


def table(config: ModelConfig) -> Table:
    """The tensors of ``CTRLLMHeadModel`` and its sibling."""
    return Table(
        prefix="transformer.",
        body=(
            Row("w.*", "token.*"),
            Row("h.#.layernorm1.*", f"{SELF}.before.*"),
            Row("h.#.multi_head_attention.Wq.*", f"{SELF}.body.query.*"),
            Row("h.#.multi_head_attention.Wk.*", f"{SELF}.body.key.*"),
            Row("h.#.multi_head_attention.Wv.*", f"{SELF}.body.value.*"),
            Row("h.#.multi_head_attention.dense.*", f"{SELF}.body.out.*"),
            Row("h.#.layernorm2.*", f"{FFN}.before.*"),
            Row("h.#.ffn.0.*", f"{FFN}.body.up.*"),
            Row("h.#.ffn.2.*", f"{FFN}.body.down.*"),
            Row("layernorm.*", f"{FINAL}.*"),
        ),
        head=head_rows(config, sequences="classifier"),
        aliases=tied_head(config, "transformer.w.weight"),
    )


FAMILY = Family(
    model_type="ctrl",
    unnamed=True,
    table=table,
    template=ModelConfig(
        vocab_size=246534,
        d_model=1280,
        context_length=256,
        embedding=EmbeddingConfig(scaled=True),
        decoder=StackConfig(
            n_layers=48,
            attention=AttentionConfig(n_heads=16),
            ffn=Mlp(d_ff=8192, act="relu"),
            norm=LayerNorm(eps=1e-6),
            positions=Sinusoidal(halves=True),
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads={
        "CTRLLMHeadModel": CausalLM(bias=True),
        "CTRLForSequenceClassification": LAST,
        "CTRLModel": BODY,
    },
    entries=(
        Key("vocab_size", "vocab_size", 246534),
        Key("n_positions", "context_length", 256),
        Key("n_embd", "d_model", 1280),
        Key("dff", "decoder.ffn.d_ff", 8192),
        Key("n_layer", "decoder.n_layers", 48),
        Key("n_head", "decoder.attention.n_heads", 16),
        Key("embd_pdrop", "embedding.dropout", 0.1),
        Key("resid_pdrop", "decoder.dropout", 0.1),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=CAUSAL),
        Labels(),
    ),
    synonyms=GPT_WORDS,
    # of the norms in its layers it is a constant, of the last one an option
    allowed=Allowed({"layer_norm_epsilon": (1e-6,)}),
    # attention was never given its dropout
    void=words("""attn_pdrop from_tf n_ctx summary_type summary_use_proj summary_activation summary_proj_to_labels
        summary_first_dropout"""),
    bare=frozenset({"CTRLModel"}),
)
