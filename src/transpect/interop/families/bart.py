"""BART (Lewis et al. 2020): norms after the branches and on the embeddings, learned positions from row 2 on."""

from transpect.core.positions import Learned
from transpect.interop.families.bart_like import Kind, family

FAMILY = family(
    Kind(
        model_type="bart",
        architectures=("BartForConditionalGeneration", "BartModel"),
        classes="BartForSequenceClassification",
        positions=Learned(offset=2),
        pre=False,
        embedding_norm=True,
        legacy={
            "normalize_before": False,
            "add_final_layer_norm": False,
            "normalize_embedding": True,
            "static_position_embeddings": False,
            "extra_pos_embeddings": 2,
        },
    )
)
