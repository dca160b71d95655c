"""UMT5 (Chung et al. 2023): mT5 with a table of positions in each layer."""

from transpect.interop.families.mt5 import DEFAULTS
from transpect.interop.families.t5 import family

FAMILY = family(
    "umt5",
    ("UMT5ForConditionalGeneration", "UMT5Model"),
    defaults=DEFAULTS,
    per_layer=True,
    void="scalable_attention",  # nothing has ever read it
)
