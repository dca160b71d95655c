"""Longformer (Beltagy et al. 2020): RoBERTa with a window in each layer, and with global tokens that look through
projections of their own.

Which tokens are global is said by tags (`Tags.is_global`); a classifier of sequences marks the first token in any case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transpect.base.codec import Data, to_data
from transpect.base.errors import CheckpointError
from transpect.core import (
    BlockSparse,
    GlobalTokens,
    MaskedLM,
    ModelConfig,
    Pooled,
    SequenceClass,
    TokenClass,
    Transform,
    Window,
)
from transpect.core.positions import Learned
from transpect.interop.families import roberta
from transpect.interop.families.bert import NORM, TEMPLATE, opens_there
from transpect.interop.families.encoder import CLASSES, SELF, AfterPadding, Pooler, entries
from transpect.interop.family import Family
from transpect.interop.layer_types import Layers, PerLayer
from transpect.interop.options import Allowed, Entry, Key, Labels, Options, Override, words
from transpect.interop.tensors import Row, Table

GLOBAL_ROWS = tuple(
    Row(f"encoder.layer.#.attention.self.{name}.*", f"{SELF}.body.{name}.*")
    for name in ("query_global", "key_global", "value_global")
)


def rule(window: int) -> Data:
    """Who sees whom in a layer of this ``attention_window``: half of it on either side, besides the token itself."""
    data: Data = to_data(Window(window // 2 + 1, both_ways=True) | GlobalTokens())
    return data


@dataclass(frozen=True)
class AttentionWindow(PerLayer):
    """``attention_window``: one for all layers or one for each, all even."""

    def defaults(self) -> Mapping[str, Any]:
        return {"attention_window": 512}

    def read(self, options: Options, n_layers: int) -> list[Data]:
        said = options["attention_window"]
        windows = said if isinstance(said, list) else [said] * n_layers
        if len(windows) != n_layers or not all(type(w) is int and w > 0 and w % 2 == 0 for w in windows):
            raise CheckpointError(
                f"attention_window must be an even number above 0, or one for each of the {n_layers} layers", value=said
            )
        return [{"visibility": rule(window)} for window in windows]

    def write(self, layers: Sequence[Data]) -> Mapping[str, Any]:
        rules = [layer["visibility"] for layer in layers]
        windows = [2 * (part["width"] - 1) for each in rules for part in each.get("rules", []) if "width" in part]
        if [rule(window) for window in windows] != rules:
            raise CheckpointError("every layer must see a window and global tokens", value=rules)
        return {"attention_window": windows}


@dataclass(frozen=True)
class FirstIsGlobal(Entry):
    """A classifier of sequences marks the first token; no option says so."""

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def read(self, options: Options) -> Iterable[Override]:
        yield "encoder.first_is_global", options.head == "sequence_class"

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {}


def table(config: ModelConfig) -> Table:
    """The tensors of ``LongformerForMaskedLM`` and its siblings."""
    return roberta.table(config, prefix="longformer.", more=GLOBAL_ROWS)


assert TEMPLATE.encoder is not None
FAMILY = Family(
    model_type="longformer",
    table=table,
    template=replace(
        TEMPLATE,
        encoder=replace(
            TEMPLATE.encoder,
            positions=Learned(offset=2),
            attention=replace(TEMPLATE.encoder.attention, global_projections=True, kernel=BlockSparse()),
        ),
    ),
    heads={
        "LongformerForMaskedLM": MaskedLM(norm=NORM),
        "LongformerModel": Pooled(pool="first", transform=Transform()),
        "LongformerForSequenceClassification": SequenceClass(2),
        "LongformerForTokenClassification": TokenClass(2),
    },
    entries=(
        *entries(),
        AfterPadding(),
        Key("hidden_dropout_prob", "head.dropout", 0.1, heads=CLASSES),
        Layers("encoder", (AttentionWindow(),)),
        FirstIsGlobal(),
        Labels(),
        Pooler(),
    ),
    # words of the authors' first release
    allowed=Allowed({"attention_mode": ("longformer",), "ignore_attention_mask": (False,)}),
    void=words("onnx_export"),
    bare=frozenset({"LongformerModel"}),
    opens_there=opens_there,
)
