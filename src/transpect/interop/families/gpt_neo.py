"""GPT-Neo (Black et al. 2021): GPT-2 with windows in some layers, no scale on the scores, no biases on q, k and v."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data, to_data
from transpect.base.errors import CheckpointError
from transpect.core import AttentionConfig, Causal, CausalLM, Mlp, ModelConfig, StackConfig, TokenClass, Window
from transpect.core.positions import Learned
from transpect.interop.families.decoder import BODY, CAUSAL, FFN, FINAL, LAST, SELF, head_rows, tied_head
from transpect.interop.family import Family
from transpect.interop.layer_types import Layers, PerLayer
from transpect.interop.options import Key, Labels, Options, activations, is_one_of, words
from transpect.interop.tensors import Row, Table

TYPES, LAYERS, WINDOW = "attention_types", "attention_layers", "window_size"
GLOBAL, LOCAL = "global", "local"


def table(config: ModelConfig) -> Table:
    """The tensors of ``GPTNeoForCausalLM`` and its siblings."""
    return Table(
        prefix="transformer.",
        body=(
            Row("wte.*", "token.*"),
            Row("wpe.*", "towers.decoder.stack.positions.table.*"),
            Row("h.#.ln_1.*", f"{SELF}.before.*"),
            Row("h.#.attn.attention.q_proj.*", f"{SELF}.body.query.*"),
            Row("h.#.attn.attention.k_proj.*", f"{SELF}.body.key.*"),
            Row("h.#.attn.attention.v_proj.*", f"{SELF}.body.value.*"),
            Row("h.#.attn.attention.out_proj.*", f"{SELF}.body.out.*"),
            Row("h.#.ln_2.*", f"{FFN}.before.*"),
            Row("h.#.mlp.c_fc.*", f"{FFN}.body.up.*"),
            Row("h.#.mlp.c_proj.*", f"{FFN}.body.down.*"),
            Row("ln_f.*", f"{FINAL}.*"),
        ),
        head=head_rows(config, tokens="classifier"),
        aliases=tied_head(config, "transformer.wte.weight"),
        void=("h.#.attn.attention.bias", "h.#.attn.attention.masked_bias"),
    )


@dataclass(frozen=True)
class AttentionTypes(PerLayer):
    """``[[["global", "local"], 12]]``: that pattern twelve times over. ``attention_layers`` may repeat it in full."""

    def defaults(self) -> Mapping[str, Any]:
        return {TYPES: [[[GLOBAL, LOCAL], 12]], LAYERS: None, WINDOW: 256}

    def read(self, options: Options, n_layers: int) -> list[Data]:
        said = options[TYPES]
        try:
            if any(len(pattern) * times > n_layers for pattern, times in said):
                raise ValueError("more than there are layers")
            types = [kind for pattern, times in said for _ in range(times) for kind in pattern]
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{TYPES} must be a list of [[type, …], times]", value=said) from error
        if (
            len(types) != n_layers
            or not all(is_one_of(kind, (GLOBAL, LOCAL)) for kind in types)
            or options[LAYERS] not in (None, types)
        ):
            raise CheckpointError(
                f"{TYPES}, and {LAYERS} if it is given, must name each of the {n_layers} layers, {GLOBAL} or {LOCAL}",
                value=said if options[LAYERS] is None else [said, options[LAYERS]],
            )
        rules = {GLOBAL: to_data(Causal()), LOCAL: {"kind": Window.kind, "width": options[WINDOW]}}
        return [{"visibility": rules[kind]} for kind in types]

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        rules = [layer["visibility"] for layer in layers]
        types = [LOCAL if rule["kind"] == Window.kind else GLOBAL for rule in rules]
        widths = {rule["width"] for rule in rules if rule["kind"] == Window.kind}
        if len(widths) > 1:
            raise CheckpointError("all windows must be of one width", value=sorted(widths))
        count = len(types)
        period = next(n for n in range(1, count + 1) if types == types[:n] * (count // n))
        return {TYPES: [[types[:period], count // period]], WINDOW: widths.pop() if widths else 256}


FAMILY = Family(
    model_type="gpt_neo",
    table=table,
    template=ModelConfig(
        vocab_size=50257,
        d_model=2048,
        context_length=2048,
        decoder=StackConfig(
            n_layers=24,
            attention=AttentionConfig(n_heads=16, qkv_bias=False, scale=1.0),
            ffn=Mlp(),
            positions=Learned(),
        ),
    ),
    heads={
        "GPTNeoForCausalLM": CausalLM(),
        "GPTNeoForSequenceClassification": LAST,
        "GPTNeoForTokenClassification": TokenClass(2),
        "GPTNeoModel": BODY,
    },
    entries=(
        Key("vocab_size", "vocab_size", 50257),
        Key("max_position_embeddings", "context_length", 2048),
        Key("hidden_size", "d_model", 2048),
        Key("num_layers", "decoder.n_layers", 24),
        Key("num_heads", "decoder.attention.n_heads", 16),
        Key("intermediate_size", "decoder.ffn.d_ff", None),
        Key("activation_function", "decoder.ffn.act", "gelu_new", activations("gelu_new")),
        Key("layer_norm_epsilon", "decoder.norm.eps", 1e-5),
        Key("embed_dropout", "embedding.dropout", 0.0),
        Key("attention_dropout", "decoder.attention.dropout", 0.0),
        Key("resid_dropout", "decoder.dropout", 0.0),
        Key("classifier_dropout", "head.dropout", 0.1, heads=("token_class",)),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=CAUSAL),
        Labels(),
        Layers("decoder", (AttentionTypes(),), count="num_layers"),
    ),
    synonyms={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    void=words("summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout"),
    bare=frozenset({"GPTNeoModel"}),
)
