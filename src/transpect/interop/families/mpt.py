"""MPT (MosaicML 2023): ALiBi, no biases anywhere, options of attention in a mapping of their own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import AttentionConfig, CausalLM, LayerNorm, Mlp, ModelConfig, NormalInit, StackConfig, TokenClass
from transpect.core.positions import Alibi
from transpect.interop.families.decoder import BODY, CAUSAL, FFN, FINAL, LAST, SELF, head_rows, projections, tied_head
from transpect.interop.family import Family
from transpect.interop.layer_types import whole
from transpect.interop.layouts import Fused
from transpect.interop.options import COMMON_VOID, Allowed, Entry, Key, Labels, Options, Override, at, is_one_of, words
from transpect.interop.tensors import Row, Table

ATTENTION = "decoder.attention"
MULTIHEAD, GROUPED = "multihead_attention", "grouped_query_attention"


def table(config: ModelConfig) -> Table:
    """The tensors of ``MptForCausalLM`` and its siblings."""
    return Table(
        prefix="transformer.",
        body=(
            Row("wte.*", "token.*"),
            Row("blocks.#.norm_1.*", f"{SELF}.before.*"),
            Row("blocks.#.attn.Wqkv.*", projections(SELF), Fused()),
            Row("blocks.#.attn.out_proj.*", f"{SELF}.body.out.*"),
            Row("blocks.#.norm_2.*", f"{FFN}.before.*"),
            Row("blocks.#.ffn.up_proj.*", f"{FFN}.body.up.*"),
            Row("blocks.#.ffn.down_proj.*", f"{FFN}.body.down.*"),
            Row("norm_f.*", f"{FINAL}.*"),
        ),
        head=head_rows(config, tokens="classifier"),
        aliases=tied_head(config, "transformer.wte.weight"),
    )


@dataclass(frozen=True)
class AttnConfig(Entry):
    """``attn_config``: the options of attention."""

    KNOWN = words("""attn_pdrop clip_qkv softmax_scale alibi_bias_max attn_impl attn_type kv_n_heads
        is_encoder_decoder id2label label2id""")  # the last line stands in whatever `transformers` saves
    ALLOWED = Allowed(
        {
            "alibi": (True,),
            "attn_uses_sequence_id": (False,),
            "prefix_lm": (False,),
            "qk_ln": (False,),
        }
    )

    def defaults(self) -> Mapping[str, Any]:
        return {"attn_config": None}

    def read(self, options: Options) -> Iterable[Override]:
        said = options["attn_config"] or {}
        if not isinstance(said, dict):
            raise CheckpointError("attn_config must be a mapping", value=said)
        unknown = sorted(said.keys() - self.KNOWN - self.ALLOWED.values.keys() - COMMON_VOID)
        if unknown:
            raise CheckpointError("attn_config has unknown options, which might change what is computed", value=unknown)
        self.ALLOWED.check(said)
        yield f"{ATTENTION}.n_kv_heads", self._kv_heads(said, options["n_heads"])
        yield f"{ATTENTION}.dropout", said.get("attn_pdrop", 0.0)
        yield f"{ATTENTION}.clip", said.get("clip_qkv") or None  # 0 is none there, too
        yield f"{ATTENTION}.scale", said.get("softmax_scale")
        yield "decoder.positions.bias_max", said.get("alibi_bias_max", 8)

    def _kv_heads(self, said: Mapping[str, Any], heads: Any) -> Any:
        kind, stated = said.get("attn_type", MULTIHEAD), said.get("kv_n_heads")
        of_kind = {MULTIHEAD: heads, "multiquery_attention": 1, GROUPED: stated}
        count = of_kind[kind] if is_one_of(kind, of_kind) else None
        if count is None or (stated is not None and stated != count):
            raise CheckpointError(
                f"attn_type must be one of {', '.join(of_kind)}, and kv_n_heads fit it", value=[kind, stated]
            )
        return count

    def write(self, ours: Data) -> Mapping[str, Any]:
        attention = at(ours, ATTENTION)
        if attention["n_kv_heads"] != attention["n_heads"]:
            raise CheckpointError("`transformers` knows no groups of heads here", value=attention["n_kv_heads"])
        said = {
            "attn_type": MULTIHEAD,
            **{name: values[0] for name, values in self.ALLOWED.values.items()},
            "clip_qkv": attention["clip"],
            "softmax_scale": attention["scale"],
        }
        # `transformers` opens a config only if these are whole numbers, a dropout of attention too
        for name, value in (
            ("attn_pdrop", attention["dropout"]),
            ("alibi_bias_max", at(ours, "decoder.positions.bias_max")),
        ):
            said |= {name: int(value)} if value == int(value) else {}
        return {"attn_config": said}


@dataclass(frozen=True)
class Expansion(Entry):
    """The width of the feed-forward as a multiple of the model's."""

    def defaults(self) -> Mapping[str, Any]:
        return {"expansion_ratio": 4}

    def read(self, options: Options) -> Iterable[Override]:
        ratio, width = whole(options, "expansion_ratio"), whole(options, "d_model")
        if ratio is None or width is None:
            raise CheckpointError("expansion_ratio and d_model must be whole numbers", value=[ratio, width])
        return [("decoder.ffn.d_ff", ratio * width)]

    def write(self, ours: Data) -> Mapping[str, Any]:
        ratio, rest = divmod(at(ours, "decoder.ffn.d_ff"), at(ours, "d_model"))
        if rest:
            raise CheckpointError("d_ff must be a multiple of d_model", value=at(ours, "decoder.ffn.d_ff"))
        return {"expansion_ratio": ratio}


def opens_there(config: ModelConfig) -> bool:
    """`transformers` drops slopes, widths and biases that the code of the makers knows."""
    stack = config.decoder
    if stack is None or not isinstance(stack.positions, Alibi) or not isinstance(stack.ffn, Mlp):
        return False
    usual = stack.positions.bias_max == 8 and stack.ffn.width(config.d_model) == 4 * config.d_model
    return usual and not stack.attention.qkv_bias


FAMILY = Family(
    model_type="mpt",
    table=table,
    template=ModelConfig(
        vocab_size=50368,
        d_model=2048,
        context_length=2048,
        decoder=StackConfig(
            n_layers=24,
            attention=AttentionConfig(n_heads=16),
            ffn=Mlp(),
            norm=LayerNorm(bias=False),
            positions=Alibi(),
        ),
        init=NormalInit(residual_scaling=False),
    ),
    heads={
        "MptForCausalLM": CausalLM(),
        "MPTForCausalLM": CausalLM(),  # in checkpoints that bring their own code
        "MptForSequenceClassification": LAST,
        "MptForTokenClassification": TokenClass(2),
        "MptModel": BODY,
    },
    entries=(
        Key("vocab_size", "vocab_size", 50368),
        Key("d_model", "d_model", 2048),
        Key("max_seq_len", "context_length", 2048),
        Key("n_layers", "decoder.n_layers", 24),
        Key("n_heads", f"{ATTENTION}.n_heads", 16),
        Expansion(),
        AttnConfig(),
        Key(
            "no_bias",
            (f"{ATTENTION}.qkv_bias", f"{ATTENTION}.out_bias", "decoder.ffn.bias", "decoder.norm.bias"),
            True,
            {True: False, False: True},
        ),
        Key("layer_norm_epsilon", "decoder.norm.eps", 1e-5),
        Key("emb_pdrop", "embedding.dropout", 0.0),
        Key("resid_pdrop", "decoder.dropout", 0.0),
        Key("classifier_dropout", "head.dropout", 0.1, heads=("token_class",)),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=CAUSAL),
        Labels(),
    ),
    synonyms={"hidden_size": "d_model", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    allowed=Allowed(
        {
            "logit_scale": (None,),
            "embedding_fraction": (1.0, 1),
            "norm_type": ("low_precision_layernorm", "layernorm"),
        }
    ),
    # there are no learned positions beside ALiBi, whatever is said
    void=words("learned_pos_emb init_config init_device verbose tokenizer_name"),
    bare=frozenset({"MptModel"}),
    opens_there=opens_there,
)
