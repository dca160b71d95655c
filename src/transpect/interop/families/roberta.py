"""RoBERTa (Liu et al. 2019) and its likes, XLM-R and CamemBERT: BERT with positions that begin after the padding's id,
and with heads of other names."""

from dataclasses import replace

from transpect.core import MaskedLM, ModelConfig, Pooled, SequenceClass, TokenClass, Transform
from transpect.core.positions import Learned
from transpect.interop.families.bert import NORM, TEMPLATE, opens_there
from transpect.interop.families.encoder import (
    CLASSIFIER,
    EMBEDDING_ROWS,
    LAYER_ROWS,
    PROJECT,
    RENAMED,
    TRANSFORM,
    AfterPadding,
    Pooler,
    Vocabulary,
    entries,
)
from transpect.interop.family import Family
from transpect.interop.options import Allowed
from transpect.interop.tensors import Row, Table

MASKED_ROWS = (Row("lm_head.dense.*", "head.dense.*"), Row("lm_head.layer_norm.*", "head.norm.*"))
CLASS_ROWS = (Row("classifier.dense.*", TRANSFORM), Row("classifier.out_proj.*", PROJECT))
POOLER = Row("pooler.dense.*", TRANSFORM)


def table(config: ModelConfig, *, prefix: str = "roberta.", more: tuple[Row, ...] = ()) -> Table:
    """The tensors of ``RobertaForMaskedLM`` and its siblings.

    Args:
        config: of the model.
        prefix: before the names of the body.
        more: further rows of the body.
    """
    output = Vocabulary("lm_head.decoder", "lm_head", f"{prefix}embeddings.word_embeddings.weight")
    pooled, masked = isinstance(config.head, Pooled), isinstance(config.head, MaskedLM)
    heads = {
        MaskedLM: (*MASKED_ROWS, *output.rows(config)),
        SequenceClass: CLASS_ROWS,
        TokenClass: (Row("classifier.*", PROJECT),),
    }
    return Table(
        prefix=prefix,
        body=(*EMBEDDING_ROWS, *LAYER_ROWS, *more, *((POOLER,) if pooled else ())),
        head=heads.get(type(config.head), ()),
        aliases=output.aliases(config) if masked else (),
        # published checkpoints carry a pooler that no other head reads
        void=("embeddings.position_ids", *(() if pooled else (POOLER.theirs,))),
        renamed=RENAMED,
    )


def like_roberta(model_type: str, name: str, vocab_size: int) -> Family:
    """A family that differs from RoBERTa in its name and its vocabulary."""
    return Family(
        model_type=model_type,
        table=table,
        template=replace(
            TEMPLATE,
            encoder=None if TEMPLATE.encoder is None else replace(TEMPLATE.encoder, positions=Learned(offset=2)),
        ),
        heads={
            f"{name}ForMaskedLM": MaskedLM(norm=NORM),
            f"{name}Model": Pooled(pool="first", transform=Transform()),
            f"{name}ForSequenceClassification": SequenceClass(2),
            f"{name}ForTokenClassification": TokenClass(2),
        },
        entries=(*entries(vocab_size=vocab_size), AfterPadding(), *CLASSIFIER, Pooler()),
        allowed=Allowed({"position_embedding_type": ("absolute",)}),
        bare=frozenset({f"{name}Model"}),
        opens_there=opens_there,
    )


FAMILIES = (
    like_roberta("roberta", "Roberta", 50265),
    like_roberta("xlm-roberta", "XLMRoberta", 30522),
    like_roberta("camembert", "Camembert", 30522),
)
