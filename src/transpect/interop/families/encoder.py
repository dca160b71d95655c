"""What the tables of families of encoders share: the rows and options of BERT's kind, and their heads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.base.errors import CheckpointError
from transpect.core import MaskedLM, ModelConfig
from transpect.interop.layer_types import whole
from transpect.interop.options import Entry, Key, Labels, Like, Options, Override, activations, at
from transpect.interop.tensors import Alias, Row, branch, step

SELF, FFN = branch("encoder", "self"), branch("encoder", "ffn")
EMBEDDINGS, STACK = "towers.encoder.embeddings", "towers.encoder.stack"
TRANSFORM, PROJECT = "head.transform.dense.*", "head.project.*"

MASKED, TOKENS = ("masked_lm",), ("token_class",)
CLASSES = ("sequence_class", "token_class")

EMBEDDING_ROWS = (
    Row("embeddings.word_embeddings.*", "token.*"),
    Row("embeddings.token_type_embeddings.*", f"{EMBEDDINGS}.segment.table.*"),
    Row("embeddings.position_embeddings.*", f"{STACK}.positions.table.*"),
    Row("embeddings.LayerNorm.*", f"{EMBEDDINGS}.norm.*"),
)
LAYER_ROWS = (
    Row("encoder.layer.#.attention.self.query.*", f"{SELF}.body.query.*"),
    Row("encoder.layer.#.attention.self.key.*", f"{SELF}.body.key.*"),
    Row("encoder.layer.#.attention.self.value.*", f"{SELF}.body.value.*"),
    Row("encoder.layer.#.attention.output.dense.*", f"{SELF}.body.out.*"),
    Row("encoder.layer.#.attention.output.LayerNorm.*", f"{step('encoder', 'self')}.after.*"),
    Row("encoder.layer.#.intermediate.dense.*", f"{FFN}.body.up.*"),
    Row("encoder.layer.#.output.dense.*", f"{FFN}.body.down.*"),
    Row("encoder.layer.#.output.LayerNorm.*", f"{step('encoder', 'ffn')}.after.*"),
)
RENAMED = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
"""What norms were called before 2019."""


@dataclass(frozen=True)
class Vocabulary:
    """The end of a masked-LM head: an output layer with a bias, of which a second one stands somewhere else.

    Where the layer's weight is the token table, the two biases are one, and the other place owns it; where the layer
    has a weight of its own, it reads its own bias, and the second one is read by nobody.

    Attributes:
        layer: the output layer.
        other: the module that holds the second bias.
        table: the name of the token table's weight.
    """

    layer: str
    other: str
    table: str

    def rows(self, config: ModelConfig) -> tuple[Row, ...]:
        """The output layer's own tensors."""
        owner = self.other if _tied(config) else self.layer
        return (Row(f"{self.layer}.weight", "head.project.weight"), Row(f"{owner}.bias", "head.project.bias"))

    def aliases(self, config: ModelConfig) -> tuple[Alias, ...]:
        """The second names of the head's tensors."""
        tied = _tied(config)
        owner, second = (self.other, self.layer) if tied else (self.layer, self.other)
        bias = Alias(f"{second}.bias", f"{owner}.bias", binding=tied)
        return (Alias(f"{self.layer}.weight", self.table), bias) if tied else (bias,)


def _tied(config: ModelConfig) -> bool:
    return isinstance(config.head, MaskedLM) and config.head.tied


def entries(*, act: str = "gelu", dropout: float = 0.1, **sizes: int) -> tuple[Entry, ...]:
    """The options of BERT's kind but those of positions and heads.

    Args:
        act: the activation when absent.
        dropout: every rate when absent.
        sizes: what other sizes are when absent.
    """
    size = {
        "vocab_size": 30522,
        "hidden_size": 768,
        "type_vocab_size": 2,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        **sizes,
    }
    return (
        Key("vocab_size", "vocab_size", size["vocab_size"]),
        Key("hidden_size", "d_model", size["hidden_size"]),
        Key("type_vocab_size", "embedding.token_types", size["type_vocab_size"]),
        Key("num_hidden_layers", "encoder.n_layers", size["num_hidden_layers"]),
        Key("num_attention_heads", "encoder.attention.n_heads", size["num_attention_heads"]),
        Key("intermediate_size", "encoder.ffn.d_ff", size["intermediate_size"]),
        Key("hidden_act", "encoder.ffn.act", act, activations(act)),
        Key("layer_norm_eps", ("encoder.norm.eps", "embedding.norm.eps"), 1e-12),
        Key("layer_norm_eps", "head.norm.eps", 1e-12, heads=MASKED),
        Key("hidden_dropout_prob", ("encoder.dropout", "embedding.dropout"), dropout),
        Key("attention_probs_dropout_prob", "encoder.attention.dropout", dropout),
        Key("initializer_range", "init.std", 0.02, optional=True),
        Key("tie_word_embeddings", "head.tied", True, heads=MASKED),
    )


LENGTH = Key("max_position_embeddings", "context_length", 512)
CLASSIFIER = (Key("classifier_dropout", "head.dropout", Like("hidden_dropout_prob"), heads=CLASSES), Labels())


@dataclass(frozen=True)
class AfterPadding(Entry):
    """Positions that begin after the padding's id (fairseq's habit): ``max_position_embeddings`` counts all rows.

    Attributes:
        rows: of the table when absent.
        pad: the padding's id when absent.
    """

    rows: int = 512
    pad: int = 1

    def defaults(self) -> Mapping[str, Any]:
        return {"max_position_embeddings": self.rows, "pad_token_id": self.pad}

    def read(self, options: Options) -> Iterable[Override]:
        rows, pad = whole(options, "max_position_embeddings"), options["pad_token_id"]
        if not isinstance(pad, int) or pad < 0:
            raise CheckpointError("pad_token_id says where positions begin, so it must be a number", value=pad)
        if rows is None:
            raise CheckpointError("max_position_embeddings must be a whole number", value=rows)
        yield "context_length", rows - (pad + 1)
        yield "encoder.positions.offset", pad + 1

    def write(self, ours: Data) -> Mapping[str, Any]:
        offset = at(ours, "encoder.positions.offset")
        if not 1 <= offset <= ours["vocab_size"]:
            raise CheckpointError("positions must begin after an id of the vocabulary", value=offset)
        return {"max_position_embeddings": ours["context_length"] + offset, "pad_token_id": offset - 1}


@dataclass(frozen=True)
class Pooler(Entry):
    """Whether a model without a head ends with a pooler, which only its tensors say. Where there are none to look at
    it is taken to have one."""

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def read(self, options: Options) -> Iterable[Override]:
        names = options.tensors() if options.head == "pooled" else ()
        if names and not any(".pooler." in f".{name}" for name in names):
            yield "head.transform", None

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {}
