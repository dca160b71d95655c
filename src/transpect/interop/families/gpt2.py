"""GPT-2 (Radford et al. 2019): learned positions, norms before the branches, linear layers stored transposed."""

from transpect.core import AttentionConfig, CausalLM, Mlp, ModelConfig, SequenceClass, StackConfig
from transpect.core.positions import Learned
from transpect.interop.family import Family
from transpect.interop.layouts import Fused, Transposed
from transpect.interop.options import Allowed, Key, Labels, activations, words
from transpect.interop.tensors import Alias, Row, Table, branch

SELF, FFN = branch("decoder", "self"), branch("decoder", "ffn")


def table(config: ModelConfig) -> Table:
    """The tensors of ``GPT2LMHeadModel`` and its siblings."""
    return Table(
        prefix="transformer.",
        body=(
            Row("wte.*", "token.*"),
            Row("wpe.*", "towers.decoder.stack.positions.table.*"),
            Row("h.#.ln_1.*", f"{SELF}.before.*"),
            Row(
                "h.#.attn.c_attn.*",
                (f"{SELF}.body.query.*", f"{SELF}.body.key.*", f"{SELF}.body.value.*"),
                Fused(Transposed()),
            ),
            Row("h.#.attn.c_proj.*", f"{SELF}.body.out.*", Transposed()),
            Row("h.#.ln_2.*", f"{FFN}.before.*"),
            Row("h.#.mlp.c_fc.*", f"{FFN}.body.up.*", Transposed()),
            Row("h.#.mlp.c_proj.*", f"{FFN}.body.down.*", Transposed()),
            Row("ln_f.*", "towers.decoder.stack.final_norm.*"),
        ),
        head=(
            Row("lm_head.*", "head.project.*")
            if isinstance(config.head, CausalLM)
            else Row("score.*", "head.project.*"),
        ),
        aliases=(Alias("lm_head.weight", "transformer.wte.weight"),) if config.head == CausalLM() else (),
        void=("h.#.attn.bias", "h.#.attn.masked_bias"),
    )


FAMILY = Family(
    model_type="gpt2",
    table=table,
    template=ModelConfig(
        vocab_size=50257,
        d_model=768,
        context_length=1024,
        decoder=StackConfig(n_layers=12, attention=AttentionConfig(n_heads=12), ffn=Mlp(), positions=Learned()),
    ),
    heads={
        "GPT2LMHeadModel": CausalLM(),
        "GPT2ForSequenceClassification": SequenceClass(2, pool="last", transform=None, bias=False, dropout=0.0),
    },
    entries=(
        Key("vocab_size", "vocab_size", 50257),
        Key("n_positions", "context_length", 1024),
        Key("n_embd", "d_model", 768),
        Key("n_layer", "decoder.n_layers", 12),
        Key("n_head", "decoder.attention.n_heads", 12),
        Key("n_inner", "decoder.ffn.d_ff", None),
        Key("activation_function", "decoder.ffn.act", "gelu_new", activations("gelu_new")),
        Key("scale_attn_weights", "decoder.attention.scale", True, {True: None, False: 1.0}),
        Key("layer_norm_epsilon", "decoder.norm.eps", 1e-5),
        Key("embd_pdrop", "embedding.dropout", 0.1),
        Key("attn_pdrop", "decoder.attention.dropout", 0.1),
        Key("resid_pdrop", "decoder.dropout", 0.1),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=("causal_lm",)),
        Labels(),
    ),
    allowed=Allowed({"scale_attn_by_inverse_layer_idx": (False,)}),
    void=words("""n_ctx reorder_and_upcast_attn summary_type summary_use_proj summary_activation summary_proj_to_labels
        summary_first_dropout"""),
)
