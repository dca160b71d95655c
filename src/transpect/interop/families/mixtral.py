"""Mixtral (Jiang et al. 2024): Mistral with a mixture of experts in each layer."""

from transpect.core import Glu, ModelConfig, Moe, override
from transpect.interop.families import experts, llama_like
from transpect.interop.family import Family
from transpect.interop.layer_types import EveryLayer, Layers, Windows
from transpect.interop.options import Allowed, Key, activations, words
from transpect.interop.rope import RopeOptions
from transpect.interop.tensors import Table


def table(config: ModelConfig) -> Table:
    """The tensors of ``MixtralForCausalLM`` and its siblings."""
    return experts.table(config, block="block_sparse_moe", names=("w1", "w3", "w2"))


FAMILY = Family(
    model_type="mixtral",
    table=table,
    template=override(llama_like.TEMPLATE, [("decoder.ffn", Moe(experts=8, ffn=Glu()))]),
    heads=llama_like.heads("Mixtral"),
    entries=llama_like.entries(
        {"max_position_embeddings": 131072, "num_key_value_heads": 8, "rms_norm_eps": 1e-5},
        Key("intermediate_size", "decoder.ffn.ffn.d_ff", 14336),
        Key("hidden_act", "decoder.ffn.ffn.act", "silu", activations("silu", "gelu_pytorch_tanh")),
        Key("num_local_experts", "decoder.ffn.experts", 8),
        Key("num_experts_per_tok", "decoder.ffn.active", 2),
        RopeOptions("decoder.positions", theta=1e6),
        Layers("decoder", (Windows(EveryLayer(), typed=False),)),
        without=("attention_bias", "mlp_bias", "intermediate_size", "hidden_act"),
    ),
    allowed=Allowed({"attention_bias": (False,)}),
    # of training alone
    void=words("pretraining_tp output_router_logits router_aux_loss_coef router_jitter_noise"),
    bare=frozenset({"MixtralModel"}),
    synonyms={"num_experts": "num_local_experts"},
)
