"""What the tables of families of decoders share: their heads, and which options say that a step is parallel."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data
from transpect.core import CausalLM, ModelConfig, SequenceClass, TokenClass
from transpect.interop.options import Entry, Options, Override, at
from transpect.interop.tensors import Alias, Row, branch

SELF, FFN = branch("decoder", "self"), branch("decoder", "ffn")
# the two branches where they stand in one step
PARALLEL_SELF, PARALLEL_FFN = (
    f"towers.decoder.stack.layers.#.steps.self_ffn.branches.{name}" for name in ("self", "ffn")
)
FINAL = "towers.decoder.stack.final_norm"
QKV = ("query", "key", "value")

LAST = SequenceClass(2, pool="last", transform=None, bias=False, dropout=0.0)
CAUSAL = ("causal_lm",)


def projections(at: str, *names: str) -> tuple[str, ...]:
    """Query, key and value of an attention branch, or those of its tensors that are named."""
    return tuple(f"{at}.body.{name}.*" for name in names or QKV)


def head_rows(config: ModelConfig, *, vocabulary: str = "lm_head", tokens: str = "score") -> tuple[Row, ...]:
    """The head's own projection, whatever kind of head it is."""
    if isinstance(config.head, CausalLM):
        return (Row(f"{vocabulary}.*", "head.project.*"),)
    return (Row(f"{tokens if isinstance(config.head, TokenClass) else 'score'}.*", "head.project.*"),)


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
