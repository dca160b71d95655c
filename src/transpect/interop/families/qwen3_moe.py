"""Qwen 3 MoE (Yang et al. 2025): Qwen 3 with a mixture of experts in all layers, or in some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import Glu, ModelConfig, Moe, QkNorm, RMSNorm, override
from transpect.interop.families import experts, llama_like
from transpect.interop.family import Family
from transpect.interop.layer_types import EveryLayer, Layers, PerLayer, Windows, whole
from transpect.interop.options import Allowed, Key, Options, activations, is_one_of, words
from transpect.interop.rope import RopeOptions
from transpect.interop.tensors import Table

WORDS = activations("silu", "gelu_pytorch_tanh")


@dataclass(frozen=True)
class SparseLayers(PerLayer):
    """Which layers are a mixture: each ``decoder_sparse_step``-th, but for ``mlp_only_layers``."""

    def defaults(self) -> Mapping[str, Any]:
        return {
            "intermediate_size": 6144,
            "hidden_act": "silu",
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "norm_topk_prob": False,
            "decoder_sparse_step": 1,
            "mlp_only_layers": None,
        }

    def read(self, options: Options, n_layers: int) -> list[Data]:
        word, dense = options["hidden_act"], options["mlp_only_layers"] or []
        if not is_one_of(word, WORDS):
            raise CheckpointError(f"hidden_act must be one of {', '.join(WORDS)}", value=word)
        if not isinstance(dense, list):
            raise CheckpointError("mlp_only_layers must be a list of layers", value=dense)
        step, count = whole(options, "decoder_sparse_step") or 1, whole(options, "num_experts", least=0)
        single = {"kind": Glu.kind, "act": WORDS[word], "d_ff": options["intermediate_size"]}
        mixed = {
            "kind": Moe.kind,
            "experts": count,
            "active": options["num_experts_per_tok"],
            "normalize": options["norm_topk_prob"],
            "ffn": {**single, "d_ff": options["moe_intermediate_size"]},
        }
        return [
            {"ffn": mixed if count and layer not in dense and (layer + 1) % step == 0 else single}
            for layer in range(n_layers)
        ]

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        mixed = [layer["ffn"] for layer in layers if layer["ffn"]["kind"] == Moe.kind]
        single = [layer["ffn"] for layer in layers if layer["ffn"]["kind"] != Moe.kind]
        if not mixed or any(ffn != mixed[0] for ffn in mixed) or any(ffn != single[0] for ffn in single):
            raise CheckpointError("some layers must be mixtures, and all of one kind alike", value=len(mixed))
        expert = mixed[0]["ffn"]
        return {
            **({"intermediate_size": single[0]["d_ff"]} if single else {}),
            "hidden_act": next(word for word, act in WORDS.items() if act == expert["act"]),
            "num_experts": mixed[0]["experts"],
            "num_experts_per_tok": mixed[0]["active"],
            "moe_intermediate_size": expert["d_ff"],
            "norm_topk_prob": mixed[0]["normalize"],
            "decoder_sparse_step": 1,
            "mlp_only_layers": [index for index, layer in enumerate(layers) if layer["ffn"]["kind"] != Moe.kind],
        }


def table(config: ModelConfig) -> Table:
    """The tensors of ``Qwen3MoeForCausalLM`` and its siblings."""
    return experts.table(config, block="mlp", names=("gate_proj", "up_proj", "down_proj"))


FAMILY = Family(
    model_type="qwen3_moe",
    table=table,
    template=override(llama_like.TEMPLATE, [("decoder.attention.qk_norm", QkNorm(RMSNorm()))]),
    heads=llama_like.heads("Qwen3Moe"),
    entries=llama_like.entries(
        {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
        },
        Key("rms_norm_eps", "decoder.attention.qk_norm.norm.eps", 1e-6),
        RopeOptions("decoder.positions"),
        Layers("decoder", (Windows(EveryLayer(4096, switch=True), typed=False), SparseLayers())),
        without=("mlp_bias", "intermediate_size", "hidden_act"),
    ),
    allowed=Allowed({"qkv_bias": (False,), "use_qk_norm": (True,), "shared_expert_intermediate_size": (0,)}),
    # of training alone
    void=words("output_router_logits router_aux_loss_coef"),
    bare=frozenset({"Qwen3MoeModel"}),
    synonyms={"num_local_experts": "num_experts"},
)
