"""``bert``: an encoder for embeddings, without the head that it was trained with."""

from __future__ import annotations

from typing import Final

from transpect.interop.gguf.table import Architecture, Fixed, Key, Place
from transpect.interop.gguf.tensors import Rows

ARCHITECTURE: Final = Architecture(
    name="bert",
    model_type="bert",
    head="BertModel",
    entries=(
        Rows(),
        Rows("token_types.weight", "type_vocab_size"),
        Key("embedding_length", "hidden_size"),
        Key("context_length", "max_position_embeddings"),
        Key("block_count", "num_hidden_layers"),
        Key("attention.head_count", "num_attention_heads"),
        Key("feed_forward_length", "intermediate_size"),
        Key("attention.layer_norm_epsilon", "layer_norm_eps", float),
        Fixed({"hidden_act": "gelu"}),
    ),
    places=(
        Place("token_embd.weight", "embeddings.word_embeddings.weight"),
        Place("token_types.weight", "embeddings.token_type_embeddings.weight"),
        Place("position_embd.weight", "embeddings.position_embeddings.weight"),
        Place("token_embd_norm.*", "embeddings.LayerNorm.*"),
        Place("blk.#.attn_q.*", "encoder.layer.#.attention.self.query.*"),
        Place("blk.#.attn_k.*", "encoder.layer.#.attention.self.key.*"),
        Place("blk.#.attn_v.*", "encoder.layer.#.attention.self.value.*"),
        Place("blk.#.attn_output.*", "encoder.layer.#.attention.output.dense.*"),
        Place("blk.#.attn_output_norm.*", "encoder.layer.#.attention.output.LayerNorm.*"),
        Place("blk.#.ffn_up.*", "encoder.layer.#.intermediate.dense.*"),
        Place("blk.#.ffn_down.*", "encoder.layer.#.output.dense.*"),
        Place("blk.#.layer_output_norm.*", "encoder.layer.#.output.LayerNorm.*"),
    ),
    void=frozenset({"pooling_type"}),  # it is the head's, see `Checkpoint.pooled`
    causal=False,
)
