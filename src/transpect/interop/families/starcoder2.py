"""StarCoder 2 (Lozhkov et al. 2024): few key-value heads, biases, a plain feed-forward, a window in all layers."""

from dataclasses import replace

from transpect.core import LayerNorm, Mlp, ModelConfig
from transpect.interop.families import llama_like
from transpect.interop.families.decoder import FFN
from transpect.interop.family import Family
from transpect.interop.layer_types import EveryLayer, Layers, Windows
from transpect.interop.options import Allowed, Key, words
from transpect.interop.rope import RopeOptions
from transpect.interop.tensors import Row, Table

TEMPLATE = llama_like.TEMPLATE
assert TEMPLATE.decoder is not None
PLAIN = (
    Row("layers.#.mlp.c_fc.*", f"{FFN}.body.up.*"),
    Row("layers.#.mlp.c_proj.*", f"{FFN}.body.down.*"),
)


def table(config: ModelConfig) -> Table:
    """The tensors of ``Starcoder2ForCausalLM`` and its siblings."""
    return llama_like.table(config, ffn=PLAIN)


FAMILY = Family(
    model_type="starcoder2",
    table=table,
    template=replace(TEMPLATE, decoder=replace(TEMPLATE.decoder, ffn=Mlp(), norm=LayerNorm())),
    heads=llama_like.heads("Starcoder2", tied=True),
    entries=llama_like.entries(
        {
            "vocab_size": 49152,
            "hidden_size": 3072,
            "intermediate_size": 12288,
            "num_hidden_layers": 30,
            "num_attention_heads": 24,
            "num_key_value_heads": 2,
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 4096,
            "initializer_range": 0.018042,
            "tie_word_embeddings": True,
        },
        Key("use_bias", (*llama_like.BIASES, "decoder.ffn.bias"), True),
        Key("norm_epsilon", "decoder.norm.eps", 1e-5),
        Key("residual_dropout", "decoder.dropout", 0.0),
        Key("embedding_dropout", "embedding.dropout", 0.0),
        RopeOptions("decoder.positions"),
        Layers("decoder", (Windows(EveryLayer(), typed=False),)),
        without=("attention_bias", "mlp_bias", "rms_norm_eps"),
    ),
    allowed=Allowed({"mlp_type": ("default",), "norm_type": ("layer_norm",), "scale_attn_weights": (True,)}),
    # published configs say these twice; there, the first two are read by their other names only
    void=words("""layer_norm_epsilon activation_function attention_softmax_in_fp32
        scale_attention_softmax_in_fp32"""),
    bare=frozenset({"Starcoder2Model"}),
)
