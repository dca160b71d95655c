"""ELECTRA (Clark et al. 2020): BERT with token vectors of a width of their own; a generator that fills masks, and a
discriminator that says of each token whether it was replaced."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transpect.base.codec import Data
from transpect.core import MaskedLM, ModelConfig, Pooled, SequenceClass, TokenClass, Transform
from transpect.interop.families.bert import NORM, TEMPLATE, opens_there
from transpect.interop.families.encoder import (
    CLASSES,
    EMBEDDING_ROWS,
    EMBEDDINGS,
    LAYER_ROWS,
    LENGTH,
    PROJECT,
    RENAMED,
    TRANSFORM,
    entries,
)
from transpect.interop.family import Family
from transpect.interop.options import ACTIVATIONS, Allowed, Entry, Key, Labels, Like, Options, Override, at, words
from transpect.interop.tensors import Alias, Row, Table

DISCRIMINATOR = "ElectraForPreTraining"


@dataclass(frozen=True)
class EmbeddingSize(Entry):
    """The width of token vectors.

    Attributes:
        default: when absent.
        projected: project them to the model's width even where that is the same (ALBERT).
    """

    default: int = 128
    projected: bool = False

    def defaults(self) -> Mapping[str, Any]:
        return {"embedding_size": self.default}

    def read(self, options: Options) -> Iterable[Override]:
        width = options["embedding_size"]
        stands = self.projected or width != options["hidden_size"]
        yield "embedding.factor", {"width": width} if stands else None

    def write(self, ours: Data) -> Mapping[str, Any]:
        factor = at(ours, "embedding.factor")
        return {"embedding_size": ours["d_model"] if factor is None else factor["width"]}


@dataclass(frozen=True)
class Scores(Entry):
    """A discriminator has one score a token, behind a layer with the model's activation, and no classes to name."""

    classes: Labels = field(default_factory=Labels)

    def defaults(self) -> Mapping[str, Any]:
        return self.classes.defaults()

    def read(self, options: Options) -> Iterable[Override]:
        if options.data.get("architectures") == [DISCRIMINATOR]:
            return [("head.n_classes", 1), ("head.transform.act", ACTIVATIONS[options["hidden_act"]])]
        return self.classes.read(options)

    def write(self, ours: Data) -> Mapping[str, Any]:
        discriminates = ours["head"]["kind"] == TokenClass.kind and ours["head"]["transform"] is not None
        return {} if discriminates else self.classes.write(ours)


def table(config: ModelConfig) -> Table:
    """The tensors of ``ElectraForPreTraining`` and its siblings."""
    head = config.head
    heads = {
        MaskedLM: (
            Row("generator_predictions.dense.*", "head.dense.*"),
            Row("generator_predictions.LayerNorm.*", "head.norm.*"),
            Row("generator_lm_head.*", PROJECT),
        ),
        SequenceClass: (Row("classifier.dense.*", TRANSFORM), Row("classifier.out_proj.*", PROJECT)),
        TokenClass: (Row("classifier.*", PROJECT),),
    }
    if isinstance(head, TokenClass) and head.transform is not None:
        heads[TokenClass] = (
            Row("discriminator_predictions.dense.*", TRANSFORM),
            Row("discriminator_predictions.dense_prediction.*", PROJECT),
        )
    tied = isinstance(head, MaskedLM) and head.tied
    return Table(
        prefix="electra.",
        body=(*EMBEDDING_ROWS, Row("embeddings_project.*", f"{EMBEDDINGS}.project.*"), *LAYER_ROWS),
        head=heads.get(type(head), ()),
        aliases=(Alias("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),) if tied else (),
        void=("embeddings.position_ids",),
        renamed=RENAMED,
    )


FAMILY = Family(
    model_type="electra",
    table=table,
    template=TEMPLATE,
    heads={
        DISCRIMINATOR: TokenClass(1, transform=Transform(act="gelu"), dropout=0.0),
        "ElectraForMaskedLM": MaskedLM(norm=NORM),
        "ElectraModel": Pooled(pool="first"),
        "ElectraForSequenceClassification": SequenceClass(2, transform=Transform(act="gelu")),
        "ElectraForTokenClassification": TokenClass(2),
    },
    entries=(
        *entries(hidden_size=256, num_attention_heads=4, intermediate_size=1024),
        LENGTH,
        EmbeddingSize(),
        Key("classifier_dropout", "head.dropout", Like("hidden_dropout_prob"), heads=CLASSES),
        Scores(),
    ),
    allowed=Allowed({"position_embedding_type": ("absolute",)}),
    # of a head for multiple choice
    void=words("summary_type summary_use_proj summary_activation summary_last_dropout"),
    bare=frozenset({"ElectraModel"}),
    opens_there=opens_there,
)
