"""What the tables of families of decoders share: their heads, and which options say that a step is parallel."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transpect.base.codec import Data
from transpect.core import CausalLM, ModelConfig, Pooled, SequenceClass, TokenClass
from transpect.interop.options import Entry, Options, Override, at
from transpect.interop.tensors import Alias, Row, branch, step

SELF, FFN = branch("decoder", "self"), branch("decoder", "ffn")
# the two branches where they stand in one step
PARALLEL_SELF, PARALLEL_FFN = (
    f"towers.decoder.stack.layers.#.steps.self_ffn.branches.{name}" for name in ("self", "ffn")
)
FINAL = "towers.decoder.stack.final_norm"
QKV = ("query", "key", "value")

LAST = SequenceClass(2, pool="last", transform=None, bias=False, dropout=0.0)
BODY = Pooled(pool="last")
CAUSAL = ("causal_lm",)
# the words that other families use, and those of GPT-1 and its kin
GPT_WORDS = {
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


def projections(at: str, *names: str) -> tuple[str, ...]:
    """Query, key and value of an attention branch, or those of its tensors that are named."""
    return tuple(f"{at}.body.{name}.*" for name in names or QKV)


def in_parallel(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The same names for branches that stand in one step, and share a norm before them that was the first one's."""

    def moved(part: str) -> str:
        shared = part.replace(f"{SELF}.before", f"{step('decoder', 'self_ffn')}.before")
        return shared.replace(SELF, PARALLEL_SELF).replace(FFN, PARALLEL_FFN)

    return tuple(replace(row, ours=tuple(map(moved, row.parts))) for row in rows)


def head_rows(
    config: ModelConfig, *, vocabulary: str = "lm_head", sequences: str = "score", tokens: str = "score"
) -> tuple[Row, ...]:
    """The head's own projection: over the vocabulary, or over classes of sequences or of tokens."""
    names = {CausalLM: vocabulary, SequenceClass: sequences, TokenClass: tokens}
    return tuple(Row(f"{name}.*", "head.project.*") for kind, name in names.items() if isinstance(config.head, kind))


def tied_head(config: ModelConfig, table: str, *, vocabulary: str = "lm_head") -> tuple[Alias, ...]:
    """A tied head's weight as another name for the token table."""
    tied = isinstance(config.head, CausalLM) and config.head.tied
    return (Alias(f"{vocabulary}.weight", table),) if tied else ()


@dataclass(frozen=True)
class ParallelResidual(Entry):
    """Whether attention and feed-forward stand in one step or in two.

    Attributes:
        name: in config.json.
        default: when absent.
        shared_norm: whether the two then share the norm before them.
    """

    name: str
    default: bool
    shared_norm: bool = False

    def defaults(self) -> Mapping[str, Any]:
        return {self.name: self.default}

    def read(self, options: Options) -> Iterable[Override]:
        parallel = bool(options[self.name])
        yield "decoder.steps", [["self", "ffn"]] if parallel else [["self"], ["ffn"]]
        yield "decoder.shared_norm", parallel and self.shared_norm

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {self.name: len(at(ours, "decoder.steps")) == 1}


def is_parallel(config: ModelConfig) -> bool:
    """Whether attention and feed-forward stand in one step."""
    assert config.decoder is not None
    return len(config.decoder.steps) == 1
