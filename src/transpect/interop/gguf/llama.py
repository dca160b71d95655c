"""``llama``: Llama, Mistral, SmolLM 2 and what else is built like them. Query and key rows are interleaved."""

from __future__ import annotations

from typing import Final

from transpect.interop.gguf.rope import FACTORS, RopeEntry
from transpect.interop.gguf.table import PLAIN, Architecture, Fixed, Key, Layout, Place
from transpect.interop.gguf.tensors import KvHeads, Presence, Rows, Tied

STACK: Final = (
    Rows(),
    Key("embedding_length", "hidden_size"),
    Key("context_length", "max_position_embeddings"),
    Key("block_count", "num_hidden_layers"),
    Key("attention.head_count", "num_attention_heads"),
    KvHeads(),
    Key("feed_forward_length", "intermediate_size"),
    Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", float),
)
"""What the decoders since Llama have in common."""


def places(query: Layout = PLAIN, key: Layout = PLAIN) -> tuple[Place, ...]:
    """Their tensors."""
    return (
        Place("token_embd.weight", "model.embed_tokens.weight"),
        Place("blk.#.attn_norm.weight", "model.layers.#.input_layernorm.weight"),
        Place("blk.#.attn_q.*", "model.layers.#.self_attn.q_proj.*", query),
        Place("blk.#.attn_k.*", "model.layers.#.self_attn.k_proj.*", key),
        Place("blk.#.attn_v.*", "model.layers.#.self_attn.v_proj.*"),
        Place("blk.#.attn_output.*", "model.layers.#.self_attn.o_proj.*"),
        Place("blk.#.ffn_norm.weight", "model.layers.#.post_attention_layernorm.weight"),
        Place("blk.#.ffn_gate.*", "model.layers.#.mlp.gate_proj.*"),
        Place("blk.#.ffn_up.*", "model.layers.#.mlp.up_proj.*"),
        Place("blk.#.ffn_down.*", "model.layers.#.mlp.down_proj.*"),
        Place("output_norm.weight", "model.norm.weight"),
        Place("output.weight", "lm_head.weight"),
    )


ARCHITECTURE: Final = Architecture(
    name="llama",
    model_type="llama",
    head="LlamaForCausalLM",
    entries=(
        *STACK,
        Fixed({"hidden_act": "silu"}),
        Presence("attention_bias", "blk.0.attn_q.bias"),
        Presence("mlp_bias", "blk.0.ffn_up.bias"),
        Tied(),
        RopeEntry(),
    ),
    places=places(Layout(heads="num_attention_heads"), Layout(heads="num_key_value_heads")),
    absorbed=frozenset({FACTORS}),
)
