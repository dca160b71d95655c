"""T5 (Raffel et al. 2020) and T5 v1.1: relative buckets, RMSNorm before the branches, no scale on the scores.

`family` makes the relatives, too, which differ in little.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
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
    Visibility,
    Window,
    XavierInit,
)
from transpect.core.positions import T5Buckets
from transpect.interop.family import Family
from transpect.interop.options import ACTIVATIONS, Allowed, Entry, Key, Like, Options, Override, at, is_one_of, words
from transpect.interop.tensors import Alias, Row, Table, branch

CROSSING = (("self",), ("cross",), ("ffn",))
SIDES = ("encoder", "decoder")
ATTENTION = AttentionConfig(n_heads=8, head_dim=64, qkv_bias=False, out_bias=False, scale=1.0)

DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 32128,
    "d_model": 512,
    "n_positions": 512,
    "num_layers": 6,
    "num_decoder_layers": Like("num_layers"),
    "num_heads": 8,
    "d_kv": 64,
    "d_ff": 2048,
    "feed_forward_proj": "relu",
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
    "dropout_rate": 0.1,
}


def both(place: str) -> tuple[str, ...]:
    """The place in either tower."""
    return tuple(f"{side}.{place}" for side in SIDES)


PLACES: Mapping[str, str | tuple[str, ...]] = {
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "n_positions": "context_length",
    "num_layers": "encoder.n_layers",
    "num_decoder_layers": "decoder.n_layers",
    "num_heads": both("attention.n_heads"),
    "d_kv": both("attention.head_dim"),
    "d_ff": both("ffn.d_ff"),
    "relative_attention_num_buckets": both("positions.buckets"),
    "relative_attention_max_distance": both("positions.max_distance"),
    "layer_norm_epsilon": both("norm.eps"),
    "dropout_rate": ("embedding.dropout", *both("dropout"), *both("attention.dropout"), *both("ffn.dropout")),
}


def local(config: ModelConfig, side: str) -> str:
    """The name of self-attention, which says in LongT5 what it sees."""
    if config.towers[side].summaries is not None:
        return "TransientGlobalSelfAttention"
    return "LocalSelfAttention" if isinstance(config.towers[side].visibility, Window) else "SelfAttention"


def table(config: ModelConfig) -> Table:
    """The tensors of ``T5ForConditionalGeneration``."""
    assert config.decoder is not None
    gated = config.decoder.ffn.kind == "glu"
    tied = isinstance(config.head, CausalLM) and config.head.tied
    own = isinstance(config.decoder.positions, T5Buckets) and config.decoder.positions.per_layer
    rows = [Row("shared.*", "token.*")]
    for side, branches in (("encoder", ("self", "ffn")), ("decoder", ("self", "cross", "ffn"))):
        bias = f"{side}.block.{'#' if own else '0'}.layer.0.{local(config, side)}.relative_attention_bias.*"
        of_layer, of_stack = f"{branch(side, 'self')}.body.relation.table.*", f"towers.{side}.stack.positions.table.*"
        rows.append(Row(bias, of_layer if own else of_stack))
        if config.towers[side].summaries is not None:
            there = f"{side}.block.#.layer.0.{local(config, side)}.global_input_layer_norm.*"
            rows.append(Row(there, f"{branch(side, 'self')}.body.summaries.norm.*"))
            of_blocks = of_stack.replace("table", "block_table")
            rows.append(Row(bias.replace("relative", "global_relative"), of_blocks))
        for place, name in enumerate(branches):
            there, here = f"{side}.block.#.layer.{place}", branch(side, name)
            rows.append(Row(f"{there}.layer_norm.*", f"{here}.before.*"))
            if name == "ffn":
                up = "wi_1" if gated else "wi"
                names = {f"DenseReluDense.{up}": "up", "DenseReluDense.wi_0": "gate", "DenseReluDense.wo": "down"}
            else:
                module = "EncDecAttention" if name == "cross" else local(config, side)
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

    default: str = "relu"

    def defaults(self) -> Mapping[str, Any]:
        return {"feed_forward_proj": self.default, "dense_act_fn": None, "is_gated_act": None}

    def read(self, options: Options) -> Iterable[Override]:
        named = options["feed_forward_proj"]
        *gate, word = str(named).split("-")
        word = "gelu_new" if named == "gated-gelu" else word
        word = word if options["dense_act_fn"] is None else options["dense_act_fn"]
        gated = bool(gate)
        known = gate in ([], ["gated"]) and is_one_of(word, ACTIVATIONS)
        if not known or options["is_gated_act"] not in (None, gated):
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


def has_own_head(names: Collection[str]) -> bool:
    """Whether a checkpoint has a head beside the table of tokens, and not as the only name of that table."""
    table = ("shared.weight", *(f"{side}.embed_tokens.weight" for side in SIDES))
    return "lm_head.weight" in names and any(name in names for name in table)


@dataclass(frozen=True)
class Tying(Entry):
    """T5 rescales what it gives to a tied head; v1.1 does not tie.

    Versions of `transformers` from 5 on write ``tie_word_embeddings: true`` for both and say by
    ``scale_decoder_outputs`` which of them it is; a v1.1 head is then tied exactly where the checkpoint has none, and
    where there is no checkpoint to look at.

    Attributes:
        scales: False for mT5, which is always as v1.1.
    """

    scales: bool = True

    def defaults(self) -> Mapping[str, Any]:
        return {"tie_word_embeddings": True, "scale_decoder_outputs": None}

    def read(self, options: Options) -> Iterable[Override]:
        tied, scaled = options["tie_word_embeddings"], options["scale_decoder_outputs"] if self.scales else False
        if tied and scaled is False:
            tied = not has_own_head(options.tensors())
            return [("head.tied", tied), ("head.rescaled", False)]
        return [("head.tied", tied), ("head.rescaled", tied if scaled is None else scaled)]

    def write(self, ours: Data) -> Mapping[str, Any]:
        tied, scaled = at(ours, "head.tied"), at(ours, "head.rescaled")
        if scaled and not tied:
            raise CheckpointError("only a tied head is rescaled")
        if scaled and not self.scales:
            raise CheckpointError("the head is not rescaled in this family")
        return {"tie_word_embeddings": tied} | (
            {} if tied == scaled or not self.scales else {"scale_decoder_outputs": scaled}
        )


FULL, TYING = Full(), Tying()


def family(
    model_type: str,
    architectures: tuple[str, ...],
    *,
    defaults: Mapping[str, Any] = {},
    per_layer: bool = False,
    visibility: Visibility = FULL,
    tying: Entry = TYING,
    entries: tuple[Entry, ...] = (),
    allowed: Mapping[str, tuple[Any, ...]] = {},
    void: str = "",
) -> Family:
    """T5 or a relative.

    Args:
        model_type: in config.json.
        architectures: of the language model, by all its names.
        defaults: of config.json, where they differ from T5's.
        per_layer: whether each layer has a table of positions of its own.
        visibility: who sees whom in the encoder.
        tying: how config.json says what the head is.
        entries: further options.
        allowed: further options of which only some values can be built.
        void: further options that say nothing.
    """
    usual: dict[str, Any] = {**DEFAULTS, **defaults}
    stack = StackConfig(
        n_layers=6,
        attention=ATTENTION,
        ffn=Mlp(bias=False),
        norm=RMSNorm(),
        positions=T5Buckets(per_layer=per_layer),
    )
    return Family(
        model_type=model_type,
        unnamed=model_type == "t5",
        table=table,
        template=ModelConfig(
            vocab_size=32128,
            d_model=512,
            context_length=512,
            encoder=replace(stack, visibility=visibility),
            decoder=replace(stack, steps=CROSSING),
            init=XavierInit(),
        ),
        heads={name: CausalLM(rescaled=True) for name in architectures},
        entries=(
            *(Key(name, places, usual[name]) for name, places in PLACES.items()),
            FeedForwardKind(usual["feed_forward_proj"]),
            tying,
            *entries,
        ),
        allowed=Allowed({"is_encoder_decoder": (True,), **allowed}),
        # names of classes belong to heads that are not built
        void=words(f"initializer_factor classifier_dropout id2label label2id num_labels {void}"),
    )


FAMILY = family(
    "t5",
    # the second is its name in early checkpoints, the third has all that a tied head needs
    ("T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model"),
)
