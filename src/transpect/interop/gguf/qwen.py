"""``qwen2`` (biases on query, key and value) and ``qwen3`` (norms on query and key)."""

from __future__ import annotations

from typing import Final

from transpect.interop.gguf.llama import STACK, places
from transpect.interop.gguf.rope import RopeEntry
from transpect.interop.gguf.table import Architecture, Fixed, Place
from transpect.interop.gguf.tensors import Tied

QWEN2: Final = Architecture(
    name="qwen2",
    model_type="qwen2",
    head="Qwen2ForCausalLM",
    entries=(*STACK, Fixed({"hidden_act": "silu"}), Tied(), RopeEntry(head_dim=False)),
    places=places(),
)

QWEN3: Final = Architecture(
    name="qwen3",
    model_type="qwen3",
    head="Qwen3ForCausalLM",
    entries=(*STACK, Fixed({"hidden_act": "silu", "attention_bias": False}), Tied(), RopeEntry()),
    places=(
        *places(),
        Place("blk.#.attn_q_norm.weight", "model.layers.#.self_attn.q_norm.weight"),
        Place("blk.#.attn_k_norm.weight", "model.layers.#.self_attn.k_norm.weight"),
    ),
)
