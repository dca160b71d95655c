"""Llama (Touvron et al. 2023): rotary positions, RMSNorm before the branches, a gated feed-forward, grouped heads."""

from transpect.core import (
    AttentionConfig,
    CausalLM,
    Glu,
    ModelConfig,
    NormalInit,
    RMSNorm,
    SequenceClass,
    StackConfig,
)
from transpect.core.positions import Rope
from transpect.interop.family import Family
from transpect.interop.options import Allowed, Key, Labels, activations, words
from transpect.interop.rope import RopeOptions
from transpect.interop.tensors import Alias, Row, Table, branch

SELF, FFN = branch("decoder", "self"), branch("decoder", "ffn")


def table(config: ModelConfig) -> Table:
    """The tensors of ``LlamaForCausalLM`` and its siblings."""
    tied = isinstance(config.head, CausalLM) and config.head.tied
    return Table(
        prefix="model.",
        body=(
            Row("embed_tokens.*", "token.*"),
            Row("layers.#.input_layernorm.*", f"{SELF}.before.*"),
            Row("layers.#.self_attn.q_proj.*", f"{SELF}.body.query.*"),
            Row("layers.#.self_attn.k_proj.*", f"{SELF}.body.key.*"),
            Row("layers.#.self_attn.v_proj.*", f"{SELF}.body.value.*"),
            Row("layers.#.self_attn.o_proj.*", f"{SELF}.body.out.*"),
            Row("layers.#.post_attention_layernorm.*", f"{FFN}.before.*"),
            Row("layers.#.mlp.gate_proj.*", f"{FFN}.body.gate.*"),
            Row("layers.#.mlp.up_proj.*", f"{FFN}.body.up.*"),
            Row("layers.#.mlp.down_proj.*", f"{FFN}.body.down.*"),
            Row("norm.*", "towers.decoder.stack.final_norm.*"),
        ),
        head=(
            Row("lm_head.*", "head.project.*")
            if isinstance(config.head, CausalLM)
            else Row("score.*", "head.project.*"),
        ),
        aliases=(Alias("lm_head.weight", "model.embed_tokens.weight"),) if tied else (),
        void=("layers.#.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
    )


def opens_there(config: ModelConfig) -> bool:
    """`transformers` wants whole heads even where head_dim is given."""
    return config.decoder is not None and config.d_model % config.decoder.attention.n_heads == 0


FAMILY = Family(
    model_type="llama",
    table=table,
    template=ModelConfig(
        vocab_size=32000,
        d_model=4096,
        context_length=2048,
        decoder=StackConfig(
            n_layers=32,
            attention=AttentionConfig(n_heads=32, qkv_bias=False, out_bias=False),
            ffn=Glu(d_ff=11008),
            norm=RMSNorm(),
            positions=Rope(),
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads={
        "LlamaForCausalLM": CausalLM(tied=False),
        "LlamaForSequenceClassification": SequenceClass(2, pool="last", transform=None, bias=False, dropout=0.0),
    },
    entries=(
        Key("vocab_size", "vocab_size", 32000),
        Key("hidden_size", "d_model", 4096),
        Key("max_position_embeddings", "context_length", 2048),
        Key("num_hidden_layers", "decoder.n_layers", 32),
        Key("num_attention_heads", "decoder.attention.n_heads", 32),
        Key("num_key_value_heads", "decoder.attention.n_kv_heads", None),
        Key("head_dim", "decoder.attention.head_dim", None),
        Key("intermediate_size", "decoder.ffn.d_ff", 11008),
        Key("hidden_act", "decoder.ffn.act", "silu", activations("silu", "gelu_pytorch_tanh")),
        Key("attention_bias", ("decoder.attention.qkv_bias", "decoder.attention.out_bias"), False),
        Key("mlp_bias", "decoder.ffn.bias", False),
        Key("rms_norm_eps", "decoder.norm.eps", 1e-6),
        Key("attention_dropout", "decoder.attention.dropout", 0.0),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", False, heads=("causal_lm",)),
        RopeOptions("decoder.positions"),
        Labels(),
    ),
    # a tensor-parallel split that was once simulated: the sum is the same
    void=words("pretraining_tp is_llama_config"),
    allowed=Allowed({"rope_interleaved": (False,)}),
    opens_there=opens_there,
)
