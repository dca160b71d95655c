"""GPT-1 (Radford et al. 2018): norms after the branches, learned positions, linear layers stored transposed."""

from transpect.core import AttentionConfig, CausalLM, Mlp, ModelConfig, NormalInit, Post, StackConfig
from transpect.core.positions import Learned
from transpect.interop.families.decoder import (
    BODY,
    CAUSAL,
    FFN,
    GPT_WORDS,
    LAST,
    SELF,
    head_rows,
    projections,
    tied_head,
)
from transpect.interop.family import Family
from transpect.interop.layouts import Fused, Transposed
from transpect.interop.options import Key, Labels, words
from transpect.interop.tensors import Row, Table, step

# the only ones there, and its gelu is the tanh form
ACTS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def table(config: ModelConfig) -> Table:
    """The tensors of ``OpenAIGPTLMHeadModel`` and its sibling."""
    return Table(
        prefix="transformer.",
        body=(
            Row("tokens_embed.*", "token.*"),
            Row("positions_embed.*", "towers.decoder.stack.positions.table.*"),
            Row("h.#.attn.c_attn.*", projections(SELF), Fused(Transposed())),
            Row("h.#.attn.c_proj.*", f"{SELF}.body.out.*", Transposed()),
            Row("h.#.ln_1.*", f"{step('decoder', 'self')}.after.*"),
            Row("h.#.mlp.c_fc.*", f"{FFN}.body.up.*", Transposed()),
            Row("h.#.mlp.c_proj.*", f"{FFN}.body.down.*", Transposed()),
            Row("h.#.ln_2.*", f"{step('decoder', 'ffn')}.after.*"),
        ),
        head=head_rows(config),
        aliases=tied_head(config, "transformer.tokens_embed.weight"),
        void=("h.#.attn.bias", "position_ids"),
    )


FAMILY = Family(
    model_type="openai-gpt",
    unnamed=True,
    table=table,
    template=ModelConfig(
        vocab_size=40478,
        d_model=768,
        context_length=512,
        decoder=StackConfig(
            n_layers=12, attention=AttentionConfig(n_heads=12), ffn=Mlp(), placement=Post(), positions=Learned()
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads={
        "OpenAIGPTLMHeadModel": CausalLM(),
        "OpenAIGPTForSequenceClassification": LAST,
        "OpenAIGPTModel": BODY,
    },
    entries=(
        Key("vocab_size", "vocab_size", 40478),
        Key("n_positions", "context_length", 512),
        Key("n_embd", "d_model", 768),
        Key("n_layer", "decoder.n_layers", 12),
        Key("n_head", "decoder.attention.n_heads", 12),
        Key("afn", "decoder.ffn.act", "gelu", ACTS),
        Key("layer_norm_epsilon", "decoder.norm.eps", 1e-5),
        Key("embd_pdrop", "embedding.dropout", 0.1),
        Key("attn_pdrop", "decoder.attention.dropout", 0.1),
        Key("resid_pdrop", "decoder.dropout", 0.1),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=CAUSAL),
        Labels(),
    ),
    synonyms=GPT_WORDS,
    void=words("""n_ctx n_special predict_special_tokens summary_type summary_use_proj summary_activation
        summary_proj_to_labels summary_first_dropout"""),
    bare=frozenset({"OpenAIGPTModel"}),
)
