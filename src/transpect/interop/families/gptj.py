"""GPT-J (Wang & Komatsuzaki 2021): interleaved rotary positions on a part of each head, branches that share a norm."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import AttentionConfig, CausalLM, Mlp, ModelConfig, NormalInit, StackConfig
from transpect.core.positions import Rope
from transpect.interop.families.decoder import (
    BODY,
    CAUSAL,
    FINAL,
    GPT_WORDS,
    LAST,
    PARALLEL_FFN,
    PARALLEL_SELF,
    head_rows,
    tied_head,
)
from transpect.interop.family import Family
from transpect.interop.layer_types import whole
from transpect.interop.options import Allowed, Entry, Key, Labels, Options, Override, activations, at, words
from transpect.interop.tensors import Row, Table, step


def table(config: ModelConfig) -> Table:
    """The tensors of ``GPTJForCausalLM`` and its sibling."""
    return Table(
        prefix="transformer.",
        body=(
            Row("wte.*", "token.*"),
            Row("h.#.ln_1.*", f"{step('decoder', 'self_ffn')}.before.*"),
            Row("h.#.attn.q_proj.*", f"{PARALLEL_SELF}.body.query.*"),
            Row("h.#.attn.k_proj.*", f"{PARALLEL_SELF}.body.key.*"),
            Row("h.#.attn.v_proj.*", f"{PARALLEL_SELF}.body.value.*"),
            Row("h.#.attn.out_proj.*", f"{PARALLEL_SELF}.body.out.*"),
            Row("h.#.mlp.fc_in.*", f"{PARALLEL_FFN}.body.up.*"),
            Row("h.#.mlp.fc_out.*", f"{PARALLEL_FFN}.body.down.*"),
            Row("ln_f.*", f"{FINAL}.*"),
        ),
        head=head_rows(config),
        aliases=tied_head(config, "transformer.wte.weight"),
        void=("h.#.attn.bias", "h.#.attn.masked_bias"),
    )


@dataclass(frozen=True)
class RotaryDim(Entry):
    """How many dimensions of each head turn."""

    def defaults(self) -> Mapping[str, Any]:
        return {"rotary_dim": 64}

    def read(self, options: Options) -> Iterable[Override]:
        turned, d_model, heads = options["rotary_dim"], whole(options, "n_embd"), whole(options, "n_head")
        if d_model is None or heads is None:
            raise CheckpointError("n_embd and n_head must be whole numbers", value=[d_model, heads])
        width = d_model // heads
        if not isinstance(turned, int) or isinstance(turned, bool) or not 0 < turned <= width:
            raise CheckpointError(f"rotary_dim must be a number from 1 to the width {width} of a head", value=turned)
        return [("decoder.positions.fraction", turned / width)]

    def write(self, ours: Data) -> Mapping[str, Any]:
        turned = at(ours, "decoder.positions.fraction") * at(ours, "decoder.attention.head_dim")
        return {"rotary_dim": round(turned)}


FAMILY = Family(
    model_type="gptj",
    table=table,
    template=ModelConfig(
        vocab_size=50400,
        d_model=4096,
        context_length=2048,
        decoder=StackConfig(
            n_layers=28,
            attention=AttentionConfig(n_heads=16, qkv_bias=False, out_bias=False),
            ffn=Mlp(),
            steps=(("self", "ffn"),),
            shared_norm=True,
            positions=Rope(interleaved=True),
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads={
        "GPTJForCausalLM": CausalLM(tied=False, bias=True),
        "GPTJForSequenceClassification": LAST,
        "GPTJModel": BODY,
    },
    entries=(
        Key("vocab_size", "vocab_size", 50400),
        Key("n_positions", "context_length", 2048),
        Key("n_embd", "d_model", 4096),
        Key("n_layer", "decoder.n_layers", 28),
        Key("n_head", "decoder.attention.n_heads", 16),
        RotaryDim(),
        Key("n_inner", "decoder.ffn.d_ff", None),
        Key("activation_function", "decoder.ffn.act", "gelu_new", activations("gelu_new")),
        Key("layer_norm_epsilon", "decoder.norm.eps", 1e-5),
        Key("embd_pdrop", "embedding.dropout", 0.0),
        Key("attn_pdrop", "decoder.attention.dropout", 0.0),
        Key("resid_pdrop", "decoder.dropout", 0.0),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", False, heads=CAUSAL),
        Labels(),
    ),
    synonyms=GPT_WORDS,
    allowed=Allowed({"rotary": (True,), "scale_attn_weights": (True,)}),
    void=words("""n_ctx summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
        tie_encoder_decoder"""),
    bare=frozenset({"GPTJModel"}),
)
