"""What BART (Lewis et al. 2020) and its relatives share: fairseq's encoder–decoder, its names and its options.

They differ in where norms stand, in what positions add, and in the defaults of config.json (`Kind`).

A classifier reads its decoder's last token; the decoder is given the source again, shifted right by its start token (in
mBART by the source's last one), with the tags of the source.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from transpect.base.codec import Data, to_data
from transpect.base.errors import CheckpointError
from transpect.core import (
    AttentionConfig,
    CausalLM,
    EmbeddingConfig,
    Full,
    LayerNorm,
    Mlp,
    ModelConfig,
    NormalInit,
    Post,
    Pre,
    SequenceClass,
    StackConfig,
)
from transpect.core.positions import Position, Sinusoidal
from transpect.core.positions.sinusoidal import encoding
from transpect.interop.computed import Computed
from transpect.interop.family import Family
from transpect.interop.layouts import OneRow
from transpect.interop.options import Allowed, Entry, Key, Labels, Options, Override, activations, at, words
from transpect.interop.tensors import Alias, Row, Table, branch, step

SIDES = {"encoder": (("self",), ("ffn",)), "decoder": (("self",), ("cross",), ("ffn",))}
BIAS = "final_logits_bias"
LANGUAGE = (Row(BIAS, "head.project.bias", OneRow()),)
CLASSES = (
    Row("classification_head.dense.*", "head.transform.dense.*"),
    Row("classification_head.out_proj.*", "head.project.*"),
)


@dataclass(frozen=True)
class Kind:
    """What a relative of BART says of itself.

    Attributes:
        model_type: in config.json.
        architectures: of its language model; then of the body alone, which a tied head makes whole.
        classes: the architecture of its classifier; empty where there is none.
        bias: whether the logits have one, zeros where a checkpoint has none.
        positions: of both towers.
        pre: norms before the branches and at the end of a tower, instead of after each branch.
        embedding_norm: whether the embeddings end with a norm.
        defaults: of config.json, where they differ from BART's.
        entries: further options.
        legacy: options of an older day that had one value in this family, with it.
        allowed: further options of which only some values can be built.
        void: further options that say nothing.
        table: changes the table of tensors.
    """

    model_type: str
    architectures: tuple[str, ...]
    positions: Position
    pre: bool
    embedding_norm: bool
    defaults: Mapping[str, Any] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    legacy: Mapping[str, Any] = field(default_factory=dict)
    allowed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    void: str = ""
    table: Callable[[ModelConfig, Table], Table] = lambda config, table: table
    classes: str = ""
    bias: bool = True


@dataclass(frozen=True)
class Settled(Entry):
    """Options of an older day that say what the family is in any case; they are checked, and not written."""

    values: Mapping[str, Any]

    def defaults(self) -> Mapping[str, Any]:
        return self.values

    def read(self, options: Options) -> Iterable[Override]:
        for name, value in self.values.items():
            if options[name] not in (None, value):
                raise CheckpointError(f"the option {name} is {value!r} in this family", value=options[name])
        return []

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True)
class Build(Entry):
    """What no option says; a model that differs in it is of another family, which is known before it is built."""

    kind: Kind

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def read(self, options: Options) -> Iterable[Override]:
        return []

    def write(self, ours: Data) -> Mapping[str, Any]:
        positions = at(ours, "decoder.positions")
        said = (
            at(ours, "decoder.placement.kind") == (Pre if self.kind.pre else Post).kind,
            (at(ours, "embedding.norm") is not None) == self.kind.embedding_norm,
            {**positions, "offset": None} == {**to_data(self.kind.positions), "offset": None},
        )
        if not all(said):
            raise CheckpointError("norms and positions are other ones in this family")
        return {}


@dataclass(frozen=True)
class Depth(Entry):
    """``encoder_layers``, and ``num_hidden_layers``, which repeats it."""

    default: int

    def defaults(self) -> Mapping[str, Any]:
        return {"encoder_layers": self.default, "num_hidden_layers": None}

    def read(self, options: Options) -> Iterable[Override]:
        depth, again = options["encoder_layers"], options["num_hidden_layers"]
        if again not in (None, depth):
            raise CheckpointError("num_hidden_layers must be encoder_layers", value=f"{again} and {depth}")
        return [("encoder.n_layers", depth)]

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {"encoder_layers": at(ours, "encoder.n_layers")}


class ThreeLabels(Labels):
    """Three classes where nothing is said."""

    def defaults(self) -> Mapping[str, Any]:
        return {**super().defaults(), "num_labels": 3}


def both(place: str) -> tuple[str, ...]:
    """The place in either tower."""
    return tuple(f"{side}.{place}" for side in SIDES)


def table(config: ModelConfig) -> Table:
    """The tensors of ``BartForConditionalGeneration`` and its relatives."""
    rows = [Row("shared.*", "token.*")]
    for side, steps in SIDES.items():
        rows += [
            Row(f"{side}.embed_positions.*", f"towers.{side}.stack.positions.table.*"),
            Row(f"{side}.layernorm_embedding.*", f"towers.{side}.embeddings.norm.*"),
            Row(f"{side}.layer_norm.*", f"towers.{side}.stack.final_norm.*"),
        ]
        for (name,) in steps:
            there, here = f"{side}.layers.#", branch(side, name)
            if name == "ffn":
                norm, names = "final_layer_norm", {"fc1": "up", "fc2": "down"}
            else:
                module = "encoder_attn" if name == "cross" else "self_attn"
                norm, names = f"{module}_layer_norm", {f"{module}.out_proj": "out"}
                names |= {f"{module}.{part[0]}_proj": part for part in ("query", "key", "value")}
            place = f"{here}.before.*" if config.last.placement.before else f"{step(side, name)}.after.*"
            rows.append(Row(f"{there}.{norm}.*", place))
            rows += [Row(f"{there}.{theirs}.*", f"{here}.body.{ours}.*") for theirs, ours in names.items()]
    second = [f"model.{side}.embed_tokens.weight" for side in SIDES]
    second += ["lm_head.weight"] if isinstance(config.head, CausalLM) else []
    return Table(
        prefix="model.",
        body=tuple(rows),
        head=LANGUAGE if isinstance(config.head, CausalLM) else CLASSES,
        aliases=tuple(Alias(name, "model.shared.weight") for name in second),
        void=tuple(f"{side}.version" for side in SIDES),
        computed=tuple(_sinusoids(config)),
        zeros=(BIAS,),
    )


def _sinusoids(config: ModelConfig) -> Iterable[Computed]:
    """Fixed positions, which checkpoints hold as a table."""
    for side, stack in config.towers.items():
        if isinstance(stack.positions, Sinusoidal):
            shape = (config.context_length, config.d_model)
            yield Computed(f"model.{side}.embed_positions.weight", shape, partial(_rows, stack.positions))


def _rows(options: Sinusoidal, shape: tuple[int, ...]) -> Tensor:
    """The table of the first positions, of a shape."""
    return encoding(torch.arange(shape[0]), shape[1], options)


def family(kind: Kind) -> Family:
    """The family of a relative."""

    def key(name: str, places: str | tuple[str, ...], default: Any, values: Mapping[Any, Any] | None = None) -> Key:
        return Key(name, places, kind.defaults.get(name, default), values)

    stacks = {
        side: StackConfig(
            n_layers=12,
            attention=AttentionConfig(n_heads=16),
            ffn=Mlp(d_ff=4096),
            steps=steps,
            placement=Pre() if kind.pre else Post(),
            norm=LayerNorm(),
            positions=kind.positions,
        )
        for side, steps in SIDES.items()
    }
    return Family(
        model_type=kind.model_type,
        table=lambda config: kind.table(config, table(config)),
        template=ModelConfig(
            vocab_size=50265,
            d_model=1024,
            context_length=1024,
            embedding=EmbeddingConfig(norm=LayerNorm() if kind.embedding_norm else None),
            encoder=replace(stacks["encoder"], visibility=Full()),
            decoder=stacks["decoder"],
            init=NormalInit(residual_scaling=False),
        ),
        heads={
            **{name: CausalLM(bias=kind.bias) for name in kind.architectures},
            **({kind.classes: SequenceClass(3, pool="last")} if kind.classes else {}),
        },
        entries=(
            Build(kind),
            key("vocab_size", "vocab_size", 50265),
            key("d_model", "d_model", 1024),
            key("max_position_embeddings", "context_length", 1024),
            Depth(kind.defaults.get("encoder_layers", 12)),
            key("decoder_layers", "decoder.n_layers", 12),
            key("encoder_attention_heads", "encoder.attention.n_heads", 16),
            key("decoder_attention_heads", "decoder.attention.n_heads", 16),
            key("encoder_ffn_dim", "encoder.ffn.d_ff", 4096),
            key("decoder_ffn_dim", "decoder.ffn.d_ff", 4096),
            key("activation_function", both("ffn.act"), "gelu", activations("gelu", "swish")),
            key("scale_embedding", "embedding.scaled", False),
            key("dropout", ("embedding.dropout", *both("dropout")), 0.1),
            key("attention_dropout", both("attention.dropout"), 0.0),
            key("activation_dropout", both("ffn.dropout"), 0.0),
            Key("init_std", "init.std", 0.02, optional=True),
            Key("classifier_dropout", "head.dropout", 0.0, heads=("sequence_class",)),
            ThreeLabels(),
            Settled(kind.legacy),
            *kind.entries,
        ),
        allowed=Allowed({"is_encoder_decoder": (True,), "tie_word_embeddings": (True,), **kind.allowed}),
        # layers are dropped in training alone
        void=words(f"""encoder_layerdrop decoder_layerdrop classif_dropout _num_labels add_bias_logits
            force_bos_token_to_be_generated replacing_rate student_encoder_layers student_decoder_layers save_step
            {kind.void}"""),
        bare=frozenset(kind.architectures[1:]),
    )
