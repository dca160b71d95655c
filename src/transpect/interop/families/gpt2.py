"""GPT-2 (Radford et al. 2019): learned positions, norms before the branches, linear layers stored transposed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import AttentionConfig, CausalLM, Mlp, ModelConfig, StackConfig, TokenClass
from transpect.core.positions import Learned
from transpect.interop.families.decoder import (
    BODY,
    CAUSAL,
    FFN,
    FINAL,
    GPT_WORDS,
    LAST,
    SELF,
    head_rows,
    projections,
    tied_head,
)
from transpect.interop.family import Family
from transpect.interop.layer_types import Layers, PerLayer, whole
from transpect.interop.layouts import Fused, Transposed
from transpect.interop.options import Key, Labels, Options, activations, words
from transpect.interop.tensors import Row, Table

INVERSE = "scale_attn_by_inverse_layer_idx"


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
                projections(SELF),
                Fused(Transposed()),
            ),
            Row("h.#.attn.c_proj.*", f"{SELF}.body.out.*", Transposed()),
            Row("h.#.ln_2.*", f"{FFN}.before.*"),
            Row("h.#.mlp.c_fc.*", f"{FFN}.body.up.*", Transposed()),
            Row("h.#.mlp.c_proj.*", f"{FFN}.body.down.*", Transposed()),
            Row("ln_f.*", f"{FINAL}.*"),
        ),
        head=head_rows(config, tokens="classifier"),
        aliases=tied_head(config, "transformer.wte.weight"),
        void=("h.#.attn.bias", "h.#.attn.masked_bias"),
    )


@dataclass(frozen=True)
class InverseScale(PerLayer):
    """``scale_attn_by_inverse_layer_idx``: the scores of layer i, counted from 1, are divided by i."""

    def defaults(self) -> Mapping[str, Any]:
        return {INVERSE: False}

    def read(self, options: Options, n_layers: int) -> list[Data]:
        if not options[INVERSE]:
            return [{} for _ in range(n_layers)]
        heads, first = whole(options, "n_head"), None if options["scale_attn_weights"] else 1.0
        width = whole(options, "n_embd")
        if heads is None or width is None or width < heads:
            raise CheckpointError("n_embd must be a multiple of n_head", value=[width, heads])
        shared = {"n_heads": heads, "dropout": options["attn_pdrop"]}
        scales = _falling(first, width // heads, n_layers)
        return [{"attention": {**shared, "scale": scale}} for scale in scales]

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        scales = [layer["attention"]["scale"] for layer in layers]
        falls = len(set(scales)) > 1
        if falls and scales != _falling(scales[0], layers[0]["attention"]["head_dim"], len(layers)):
            raise CheckpointError("the scale must be that of the first layer divided by the layer's number")
        return {INVERSE: falls}


def _falling(first: float | None, head_dim: int, n_layers: int) -> list[float | None]:
    whole = head_dim**-0.5 if first is None else first
    return [first, *(whole / number for number in range(2, n_layers + 1))]


FAMILY = Family(
    model_type="gpt2",
    unnamed=True,
    table=table,
    template=ModelConfig(
        vocab_size=50257,
        d_model=768,
        context_length=1024,
        decoder=StackConfig(n_layers=12, attention=AttentionConfig(n_heads=12), ffn=Mlp(), positions=Learned()),
    ),
    heads={
        "GPT2LMHeadModel": CausalLM(),
        "GPT2ForSequenceClassification": LAST,
        "GPT2ForTokenClassification": TokenClass(2),
        "GPT2Model": BODY,
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
        Key("classifier_dropout", "head.dropout", 0.1, heads=("token_class",)),
        Key("tie_word_embeddings", "head.tied", True, heads=CAUSAL),
        Labels(),
        Layers("decoder", (InverseScale(),), count="n_layer"),
    ),
    synonyms=GPT_WORDS,
    void=words("""n_ctx reorder_and_upcast_attn summary_type summary_use_proj summary_activation summary_proj_to_labels
        summary_first_dropout n_special predict_special_tokens"""),
    bare=frozenset({"GPT2Model"}),
)
