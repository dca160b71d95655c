"""mT5 (Xue et al. 2021): T5 v1.1 over another vocabulary."""

from transpect.interop.families.t5 import Tying, family

DEFAULTS = {"vocab_size": 250112, "num_layers": 8, "num_heads": 6, "d_ff": 1024, "feed_forward_proj": "gated-gelu"}

FAMILY = family("mt5", ("MT5ForConditionalGeneration", "MT5Model"), defaults=DEFAULTS, tying=Tying(scales=False))
