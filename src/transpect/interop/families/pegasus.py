"""Pegasus (Zhang et al. 2020): sines, then cosines; norms before the branches and at the end of each tower."""

from transpect.core.positions import Sinusoidal
from transpect.interop.families.bart_like import Kind, family

FAMILY = family(
    Kind(
        model_type="pegasus",
        architectures=("PegasusForConditionalGeneration", "PegasusModel"),
        positions=Sinusoidal(halves=True),
        pre=True,
        embedding_norm=False,
        legacy={
            "normalize_before": True,
            "add_final_layer_norm": True,
            "normalize_embedding": False,
            "static_position_embeddings": True,
        },
        void="extra_pos_embeddings",
    )
)
