"""BigBird (Zaheer et al. 2020): BERT whose tokens see neighbouring blocks, the blocks at both edges, and random ones.

`transformers` draws random blocks in training only, and otherwise takes block 0 as often as it would have drawn. A
checkpoint is read as that, so that it computes here what it computes there. With `RandomBlocks` as one more part of the
rule the paper's own attention can be built; `transformers` has no word for it.

A row computes here what it computes alone. There the blocks of a padded batch are counted from its first column and the
last block is that of its longest row; and a model that has once met a short input attends in full from then on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transpect.base.codec import Data, to_data
from transpect.base.errors import CheckpointError
from transpect.core import (
    Blocks,
    BlockSparse,
    EdgeBlocks,
    Full,
    MaskedLM,
    ModelConfig,
    Pooled,
    SequenceClass,
    TokenClass,
    Transform,
    UpTo,
    Visibility,
)
from transpect.core.positions import Learned, RepeatedBlock
from transpect.interop.families import bert, roberta
from transpect.interop.families.bert import NORM, TEMPLATE, opens_there
from transpect.interop.families.encoder import (
    CLASSIFIER,
    EMBEDDING_ROWS,
    LAYER_ROWS,
    MASKED,
    PROJECT,
    RENAMED,
    STACK,
    TRANSFORM,
    Pooler,
    entries,
)
from transpect.interop.family import Family
from transpect.interop.layer_types import whole
from transpect.interop.options import ACTIVATIONS, Allowed, Entry, Key, Options, Override, activations, at
from transpect.interop.tensors import Row, Table

FULL, SPARSE = "original_full", "block_sparse"


def longest_in_full(size: int, n_random: int) -> int:
    """How many tokens a sequence may have that is attended to in full all the same."""
    return (5 + 2 * n_random) * size


def sparse(size: int, n_random: int) -> Visibility:
    """Who sees whom under ``block_sparse``, without random blocks."""
    return UpTo(longest_in_full(size, n_random)) | Blocks(size) | EdgeBlocks(size)


def positions(size: int, n_random: int, inner: Learned) -> RepeatedBlock:
    """Positions under ``block_sparse``: what stands for random blocks counts block 0 that often."""
    return RepeatedBlock(size, times=n_random, above=longest_in_full(size, n_random), inner=inner)


@dataclass(frozen=True)
class SparseAttention(Entry):
    """``attention_type``, and the blocks of a sparse one."""

    place: str = "encoder"

    def defaults(self) -> Mapping[str, Any]:
        return {"attention_type": SPARSE, "block_size": 64, "num_random_blocks": 3}

    def read(self, options: Options) -> Iterable[Override]:
        kind = options["attention_type"]
        size, n_random = whole(options, "block_size"), whole(options, "num_random_blocks")
        if kind not in (FULL, SPARSE):
            raise CheckpointError(f"attention_type must be {FULL} or {SPARSE}", value=kind)
        if kind == FULL:
            yield f"{self.place}.visibility", Full()
            return
        if size is None or n_random is None:
            raise CheckpointError("sparse attention needs block_size and num_random_blocks", value=[size, n_random])
        yield f"{self.place}.attention.kernel", BlockSparse()
        yield f"{self.place}.visibility", sparse(size, n_random)
        yield f"{self.place}.positions", positions(size, n_random, Learned())

    def write(self, ours: Data) -> Mapping[str, Any]:
        scheme = at(ours, f"{self.place}.positions")
        if scheme["kind"] != RepeatedBlock.kind:
            return {"attention_type": FULL}
        size, n_random = scheme["size"], scheme["times"]
        if at(ours, f"{self.place}.visibility") != to_data(sparse(size, n_random)):
            raise CheckpointError("sparse attention must be that of neighbours and edges", value=scheme)
        return {"attention_type": SPARSE, "block_size": size, "num_random_blocks": n_random}


@dataclass(frozen=True)
class ClassifierAct(Entry):
    """A classifier's own layer has the model's activation."""

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def read(self, options: Options) -> Iterable[Override]:
        if options.head == "sequence_class":
            yield "head.transform.act", ACTIVATIONS[options["hidden_act"]]

    def write(self, ours: Data) -> Mapping[str, Any]:
        return {}


def table(config: ModelConfig) -> Table:
    """The tensors of ``BigBirdForMaskedLM`` and its siblings."""
    masked, pooled = isinstance(config.head, MaskedLM), isinstance(config.head, Pooled)
    heads = {
        MaskedLM: (*bert.MASKED_ROWS, *bert.OUTPUT.rows(config)),
        SequenceClass: roberta.CLASS_ROWS,
        TokenClass: (Row("classifier.*", PROJECT),),
    }
    return Table(
        prefix="bert.",
        body=(
            *EMBEDDING_ROWS,
            Row("embeddings.position_embeddings.*", f"{STACK}.positions.inner.table.*"),
            *LAYER_ROWS,
            *((Row("pooler.*", TRANSFORM),) if pooled else ()),
        ),
        head=heads.get(type(config.head), ()),
        aliases=bert.OUTPUT.aliases(config) if masked else (),
        void=("embeddings.position_ids", "cls.seq_relationship.*", *(() if pooled else ("pooler.*",))),
        renamed=RENAMED,
    )


FAMILY = Family(
    model_type="big_bird",
    table=table,
    template=TEMPLATE,
    heads={
        "BigBirdForMaskedLM": MaskedLM(norm=NORM),
        "BigBirdForPreTraining": MaskedLM(norm=NORM),
        "BigBirdModel": Pooled(pool="first", transform=Transform()),
        "BigBirdForSequenceClassification": SequenceClass(2),
        "BigBirdForTokenClassification": TokenClass(2),
    },
    entries=(
        *entries(act="gelu_new", vocab_size=50358),
        Key("max_position_embeddings", "context_length", 4096),
        Key("use_bias", "encoder.attention.qkv_bias", True),
        Key("rescale_embeddings", "embedding.scaled", False),
        Key("hidden_act", "head.act", "gelu_new", activations("gelu_new"), heads=MASKED),
        ClassifierAct(),
        SparseAttention(),
        *CLASSIFIER,
        Pooler(),
    ),
    allowed=Allowed({"position_embedding_type": ("absolute",)}),
    bare=frozenset({"BigBirdModel"}),
    opens_there=opens_there,
)
