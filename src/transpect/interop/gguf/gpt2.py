"""``gpt2``: its linear layers are stored [out, in], where Hugging Face has them transposed."""

from __future__ import annotations

from typing import Final

from transpect.interop.gguf.table import Architecture, Fixed, Key, Layout, Place
from transpect.interop.gguf.tensors import FeedForward, Rows, Tied

TURNED: Final = Layout(transposed=True)

ARCHITECTURE: Final = Architecture(
    name="gpt2",
    model_type="gpt2",
    head="GPT2LMHeadModel",
    entries=(
        Rows(),
        Key("embedding_length", "n_embd"),
        Key("context_length", "n_positions"),
        Key("block_count", "n_layer"),
        Key("attention.head_count", "n_head"),
        FeedForward(),
        Key("attention.layer_norm_epsilon", "layer_norm_epsilon", float),
        Fixed({"activation_function": "gelu_new", "scale_attn_weights": True}),
        Tied(),
    ),
    places=(
        Place("token_embd.weight", "transformer.wte.weight"),
        Place("position_embd.weight", "transformer.wpe.weight"),
        Place("blk.#.attn_norm.*", "transformer.h.#.ln_1.*"),
        Place("blk.#.attn_qkv.*", "transformer.h.#.attn.c_attn.*", TURNED),
        Place("blk.#.attn_output.*", "transformer.h.#.attn.c_proj.*", TURNED),
        Place("blk.#.ffn_norm.*", "transformer.h.#.ln_2.*"),
        Place("blk.#.ffn_up.*", "transformer.h.#.mlp.c_fc.*", TURNED),
        Place("blk.#.ffn_down.*", "transformer.h.#.mlp.c_proj.*", TURNED),
        Place("output_norm.*", "transformer.ln_f.*"),
        Place("output.weight", "lm_head.weight"),
    ),
)
