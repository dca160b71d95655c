"""mBART (Liu et al. 2020): BART with norms before the branches and at the end of each tower."""

from transpect.core.positions import Learned
from transpect.interop.families.bart_like import Kind, family

FAMILY = family(
    Kind(
        model_type="mbart",
        architectures=("MBartForConditionalGeneration", "MBartModel"),
        classes="MBartForSequenceClassification",
        positions=Learned(offset=2),
        pre=True,
        embedding_norm=True,
        legacy={
            "normalize_before": True,
            "add_final_layer_norm": True,
            "normalize_embedding": True,
            "static_position_embeddings": False,
            "extra_pos_embeddings": 2,
        },
    )
)
