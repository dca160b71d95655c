"""T5 (Raffel et al. 2020) and T5 v1.1: relative buckets, RMSNorm before the branches, no scale on the scores."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import (
    AttentionConfig,
    CausalLM,
    Full,
    Mlp,
    ModelConfig,
    RMSNorm,
    StackConfig,
    XavierInit,
)
from transpect.core.positions import T5Buckets
from transpect.interop.family import Family
from transpect.interop.options import ACTIVATIONS, Allowed, Entry, Key, Like, Options, Override, at, words
from transpect.interop.tensors import Alias, Row, Table, branch

CROSSING = (("self",), ("cross",), ("ffn",))
SIDES = ("encoder", "decoder")
ATTENTION = AttentionConfig(n_heads=8, head_dim=64, qkv_bias=False, out_bias=False, scale=1.0)


def both(place: str) -> tuple[str, ...]:
    """The place in either tower."""
    return tuple(f"{side}.{place}" for side in SIDES)


def table(config: ModelConfig) -> Table:
    """The tensors of ``T5ForConditionalGeneration``."""
    assert config.decoder is not None
    gated = config.decoder.ffn.kind == "glu"
    tied = isinstance(config.head, CausalLM) and config.head.tied
    rows = [Row("shared.*", "token.*")]
    for side, branches in (("encoder", ("self", "ffn")), ("decoder", ("self", "cross", "ffn"))):
        rows.append(
            Row(
                f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.*",
                f"towers.{side}.stack.positions.table.*",
            )
        )
        for place, name in enumerate(branches):
            there, here = f"{side}.block.#.layer.{place}", branch(side, name)
            rows.append(Row(f"{there}.layer_norm.*", f"{here}.before.*"))
            if name == "ffn":
                up = "wi_1" if gated else "wi"
                names = {f"DenseReluDense.{up}": "up", "DenseReluDense.wi_0": "gate", "DenseReluDense.wo": "down"}
            else:
                module = "EncDecAttention" if name == "cross" else "SelfAttention"
                names = {f"{module}.{p[0]}": p for p in ("query", "key", "value", "out")}
            rows += [Row(f"{there}.{theirs}.*", f"{here}.body.{ours}.*") for theirs, ours in names.items()]
        rows.append(Row(f"{side}.final_layer_norm.*", f"towers.{side}.stack.final_norm.*"))
    shared = [f"{side}.embed_tokens.weight" for side in SIDES] + (["lm_head.weight"] if tied else [])
    return Table(
        body=tuple(rows),
        head=(Row("lm_head.*", "head.project.*"),),
        aliases=tuple(Alias(name, "shared.weight") for name in shared),
        # an early version gave cross-attention a table that it never read
        void=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.*",),
    )


@dataclass(frozen=True)
class FeedForwardKind(Entry):
    """``relu`` or ``gated-gelu``, whose gelu is the tanh form; two derived options may repeat it."""

    def defaults(self) -> Mapping[str, Any]:
        return {"feed_forward_proj": "relu", "dense_act_fn": None, "is_gated_act": None}

    def read(self, options: Options) -> Iterable[Override]:
        named = options["feed_forward_proj"]
        *gate, word = str(named).split("-")
        word = "gelu_new" if named == "gated-gelu" else word
        word = word if options["dense_act_fn"] is None else options["dense_act_fn"]
        gated = bool(gate)
        if gate not in ([], ["gated"]) or word not in ACTIVATIONS or options["is_gated_act"] not in (None, gated):
            raise CheckpointError(
                "feed_forward_proj must be ACTIVATION or gated-ACTIVATION, dense_act_fn and is_gated_act its parts",
                value=[named, options["dense_act_fn"], options["is_gated_act"]],
            )
        for place in both("ffn.kind"):
            yield place, "glu" if gated else "mlp"
        for place in both("ffn.act"):
            yield place, ACTIVATIONS[word]

    def write(self, ours: Data) -> Mapping[str, Any]:
        act, gated = at(ours, "decoder.ffn.act"), at(ours, "decoder.ffn.kind") == "glu"
        if gated and act == "gelu_tanh":
            return {"feed_forward_proj": "gated-gelu"}
        word = next(theirs for theirs, mine in ACTIVATIONS.items() if mine == act)
        return {"feed_forward_proj": f"gated-{word}" if gated else word}


@dataclass(frozen=True)
class Tying(Entry):
    """T5 rescales what it gives to a tied head; v1.1 does not tie.

    Versions of `transformers` from 5 on write ``tie_word_embeddings: true`` for both and say by
    ``scale_decoder_outputs`` which of them it is; a v1.1 head is then tied exactly where the checkpoint has none.
    """

    def defaults(self) -> Mapping[str, Any]:
        return {"tie_word_embeddings": True, "scale_decoder_outputs": None}

    def read(self, options: Options) -> Iterable[Override]:
        tied, scaled = options["tie_word_embeddings"], options["scale_decoder_outputs"]
        if tied and scaled is False:
            tied = "lm_head.weight" not in options.tensors()
            return [("head.tied", tied), ("head.rescaled", False)]
        return [("head.tied", tied), ("head.rescaled", tied if scaled is None else scaled)]

    def write(self, ours: Data) -> Mapping[str, Any]:
        tied, scaled = at(ours, "head.tied"), at(ours, "head.rescaled")
        if scaled and not tied:
            raise CheckpointError("only a tied head is rescaled")
        return {"tie_word_embeddings": tied} | ({} if tied == scaled else {"scale_decoder_outputs": scaled})


FAMILY = Family(
    model_type="t5",
    table=table,
    template=ModelConfig(
        vocab_size=32128,
        d_model=512,
        context_length=512,
        encoder=StackConfig(
            n_layers=6,
            attention=ATTENTION,
            ffn=Mlp(bias=False),
            norm=RMSNorm(),
            positions=T5Buckets(),
            visibility=Full(),
        ),
        decoder=StackConfig(
            n_layers=6,
            attention=ATTENTION,
            ffn=Mlp(bias=False),
            steps=CROSSING,
            norm=RMSNorm(),
            positions=T5Buckets(),
        ),
        init=XavierInit(),
    ),
    heads={
        "T5ForConditionalGeneration": CausalLM(rescaled=True),
        "T5WithLMHeadModel": CausalLM(rescaled=True),  # its name in early checkpoints
    },
    entries=(
        Key("vocab_size", "vocab_size", 32128),
        Key("d_model", "d_model", 512),
        Key("n_positions", "context_length", 512),
        Key("num_layers", "encoder.n_layers", 6),
        Key("num_decoder_layers", "decoder.n_layers", Like("num_layers")),
        Key("num_heads", both("attention.n_heads"), 8),
        Key("d_kv", both("attention.head_dim"), 64),
        Key("d_ff", both("ffn.d_ff"), 2048),
        FeedForwardKind(),
        Key("relative_attention_num_buckets", both("positions.buckets"), 32),
        Key("relative_attention_max_distance", both("positions.max_distance"), 128),
        Key("layer_norm_epsilon", both("norm.eps"), 1e-6),
        Key(
            "dropout_rate",
            ("embedding.dropout", *both("dropout"), *both("attention.dropout"), *both("ffn.dropout")),
            0.1,
        ),
        Tying(),
    ),
    allowed=Allowed({"is_encoder_decoder": (True,)}),
    void=words("initializer_factor classifier_dropout"),
)
